"""Every service in turn is drained over its ops port and started anew, while clients go on asking.

The clients are official ones without any retry, behind a balancer that does what every balancer does: it asks
``/readyz`` and sends to who is ready. Two replicas of each service, and not one request may fail.
"""

import itertools
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import openai
import pytest
from tests.e2e.slow import slow_stack
from tests.e2e.system import MODEL, sim_only
from tests.patience import eventually
from tests.servers import free_port
from tests.stack import Replica, Stack

pytestmark = [sim_only, pytest.mark.timeout(300)]

NUM_CLIENTS: Final = 4
PROBE_S: Final = 0.1
LAME_DUCK_S: Final = 4.0
STEP_S: Final = 0.02
SERVICES: Final = ("cache", "scheduler", "prefill", "decode", "ingress", "traces")


@pytest.fixture(scope="module")
def fleet(tiny_model: Path) -> Iterator[Stack]:
    with slow_stack(
        tiny_model, STEP_S, num_decode=2, traces=True, SUB100_INGRESS_LAME_DUCK_S=str(LAME_DUCK_S)
    ) as running:
        for service in ("cache", "scheduler", "prefill"):
            running.add(service)
        running.add("ingress", SUB100_INGRESS_PORT=str(free_port()))
        running.wait_ready(*(name for name in running.replicas if name.endswith("-2")))
        yield running


class Balancer:
    """Asks each ingress every PROBE_S whether it is ready; hands out those that are, in turn."""

    def __init__(self, replicas: list[Replica], key: str) -> None:
        self._clients = {
            replica.instance: openai.OpenAI(
                base_url=f"http://127.0.0.1:{replica.env['SUB100_INGRESS_PORT']}/v1",
                api_key=key,
                max_retries=0,
            )
            for replica in replicas
        }
        self._probes = {replica.instance: f"{replica.ops_url}/readyz" for replica in replicas}
        self._ready: list[str] = []
        self._turns = itertools.count()
        self._is_over = threading.Event()
        self._probe()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def pick(self) -> openai.OpenAI:
        ready = self._ready
        return self._clients[ready[next(self._turns) % len(ready)]]

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()
        for client in self._clients.values():
            client.close()

    def _run(self) -> None:
        while not self._is_over.wait(PROBE_S):
            self._probe()

    def _probe(self) -> None:
        self._ready = [name for name, url in self._probes.items() if _is_ready(url)] or self._ready


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1):
            return True
    except (OSError, urllib.error.HTTPError):
        return False


class Load:
    """NUM_CLIENTS that stream answers, and check each against what a quiet system said."""

    def __init__(self, balancer: Balancer) -> None:
        self._balancer = balancer
        self._is_over = threading.Event()
        self._expected = [self._ask(client) for client in range(NUM_CLIENTS)]
        self.num_served = 0
        self.faults: list[str] = []
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=(i,)) for i in range(NUM_CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _ask(self, client: int) -> str:
        stream = self._balancer.pick().chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": f"Client {client} asks. " + "word " * 50 * client}],
            temperature=0,
            max_tokens=20 + client,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        text, reason = "", None
        for chunk in stream:
            text += chunk.choices[0].delta.content or ""
            reason = chunk.choices[0].finish_reason or reason
        assert reason == "length", reason
        return text

    def _run(self, client: int) -> None:
        while not self._is_over.is_set():
            try:
                fault = "" if self._ask(client) == self._expected[client] else "another text"
            except (openai.APIError, AssertionError) as error:
                fault = repr(error)
            with self._lock:
                self.num_served += not fault
                if fault:
                    self.faults.append(f"{time.strftime('%X')} client {client}: {fault}")

    def wait_served(self, num_more: int) -> None:
        """Until so many more have been answered."""
        wanted = self.num_served + num_more
        eventually(lambda: self.num_served >= wanted or self.faults, "answers to all clients")

    def stop(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a request never ended"


def restart(fleet: Stack, replica: Replica) -> None:
    """Drain over the ops port; wait for the end; start anew."""
    asked = urllib.request.Request(f"{replica.ops_url}/drain", method="POST")
    with urllib.request.urlopen(asked, timeout=5) as answer:
        assert answer.status == 202
        assert json.loads(answer.read())["state"] in ("ready", "draining")
    assert replica.wait() == 0, replica.log[-2000:]
    replica.start()
    fleet.wait_ready(replica.instance)


def test_rolling_restart_of_every_service_fails_no_request(fleet: Stack) -> None:
    replicas = [r for service in SERVICES for r in fleet.replicas.values() if r.service == service]
    balancer = Balancer([r for r in replicas if r.service == "ingress"], fleet.keys["demo"])
    try:
        load = Load(balancer)
        try:
            for replica in replicas:
                restart(fleet, replica)
                load.wait_served(NUM_CLIENTS)
                assert load.faults == [], f"while {replica.instance} was restarted\n{fleet.logs()}"
        finally:
            load.stop()
    finally:
        balancer.close()
    assert load.faults == []
    assert load.num_served >= NUM_CLIENTS * len(replicas)

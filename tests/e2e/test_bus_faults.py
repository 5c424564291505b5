"""NATS and Redis away: at start, in the middle, under load. Services wait, say so, refuse what they cannot
serve, and come back by themselves."""

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.raw_http import DONE, Answer, LiveStream, post, request
from tests.e2e.slow import slow_stack
from tests.e2e.system import MODEL, sim_only
from tests.patience import PATIENCE_S, at_best, eventually
from tests.stack import Stack

pytestmark = sim_only

BODY: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Tell me a story."}],
    "temperature": 0,
    "max_tokens": 50,
    "ignore_eos": True,
}
STREAM: dict[str, Any] = BODY | {"stream": True}
SHORT: dict[str, Any] = BODY | {"max_tokens": 2}


@pytest.fixture(scope="module")
def own(tiny_model: Path) -> Iterator[Stack]:
    with slow_stack(
        tiny_model,
        0.03,
        SUB100_INGRESS_STALL_TIMEOUT_S="3",
        SUB100_INGRESS_PATIENCE_MS="30000",
        SUB100_DRAIN_TIMEOUT_S="10",
    ) as running:
        yield running


def is_served(stack: Stack) -> bool:
    return post(stack.url, SHORT, stack.keys["plain"]).status == 200


def is_ready(stack: Stack) -> bool:
    answer = request(stack.url, "GET", "/readyz")
    assert answer.status == (200 if answer.json["ready"] else 503)
    return bool(answer.json["ready"])


class Load:
    """Clients that stream one answer after the other until told to stop; what became of each."""

    def __init__(self, stack: Stack, num_clients: int) -> None:
        self._stack = stack
        self._is_over = threading.Event()
        self.outcomes: list[str] = []
        self._threads = [threading.Thread(target=self._run) for _ in range(num_clients)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> list[str]:
        self._is_over.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "a stream never ended"
        return self.outcomes

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                answer = post(self._stack.url, STREAM, self._stack.keys["plain"])
            except (ConnectionRefusedError, ConnectionResetError):
                self.outcomes.append("refused")
                self._is_over.wait(0.1)
                continue
            self.outcomes.append(outcome(answer))
            if answer.status != 200:
                self._is_over.wait(0.1)


def outcome(answer: Answer) -> str:
    """``done``, ``error <code>`` in the stream, or ``<status> <code>``; anything else fails."""
    if answer.status != 200:
        return f"{answer.status} {answer.error['code']}"
    last = answer.events[-1]
    if last == DONE:
        assert answer.finish_reasons == ["length"]
        return "done"
    assert answer.finish_reasons == []
    assert DONE not in answer.events
    return f"error {last['error']['code']}"


def test_nats_away_is_a_503_with_retry_after_and_not_ready(own: Stack) -> None:
    assert is_served(own)
    own.nats.kill()
    try:
        eventually(lambda: not is_ready(own), "not ready")
        answer = post(own.url, STREAM, own.keys["plain"])
        assert answer.status == 503
        assert answer.error["code"] == "bus_unavailable"
        assert int(answer.headers["retry-after"]) >= 1
        at_best(lambda: post(own.url, STREAM, own.keys["plain"]).elapsed_s, 1, "refused after")
        assert request(own.url, "GET", "/healthz").status == 200
        unknown = post(own.url, STREAM, "sk-wrong")
        assert unknown.status in (401, 503)
    finally:
        own.nats.start()
    eventually(lambda: is_ready(own) and is_served(own), "served again")


def test_nats_restart_under_load_is_survived_by_all_without_a_restart(own: Stack) -> None:
    """N03: subscriptions deliver again; streams in flight end one way or the other."""
    pids = {name: replica.pid for name, replica in own.replicas.items()}
    load = Load(own, 8)
    try:
        eventually(lambda: load.outcomes.count("done") >= 4, "load")
        own.nats.kill()
        eventually(lambda: not is_ready(own), "not ready")
        eventually(lambda: any(found.startswith("503") for found in list(load.outcomes)), "refusals")
        own.nats.start()
        eventually(lambda: is_served(own), "served again")
        num_before = load.outcomes.count("done")
        eventually(lambda: load.outcomes.count("done") >= num_before + 8, "load served again")
    finally:
        own.nats.start()
        outcomes = load.stop()
    assert {name: replica.pid for name, replica in own.replicas.items()} == pids
    assert all(replica.is_running for replica in own.replicas.values())
    allowed = {"done", "503 bus_unavailable", "503 scheduler_unavailable", "503 no_capacity"}
    allowed |= {
        f"{kind} {code}"
        for kind in ("error", "502", "503")
        for code in ("worker_lost", "bus_unavailable", "no_capacity", "scheduler_unavailable")
    }
    assert set(outcomes) <= allowed


def test_short_loss_of_nats_costs_no_stream(own: Stack) -> None:
    """A broker that is back within a second: tokens that were lost on the way are asked for again."""
    whole = post(own.url, STREAM, own.keys["plain"]).text
    streams = [LiveStream(own.url, STREAM, own.keys["plain"]) for _ in range(4)]
    pieces = [[stream.next_text() for _ in range(3)] for stream in streams]  # decode has begun
    own.nats.kill()
    own.nats.start()
    for stream, found in zip(streams, pieces, strict=True):
        *events, last = stream.rest()
        stream.close()
        assert last == DONE, last
        found += [e["choices"][0]["delta"].get("content", "") for e in events if isinstance(e, dict)]
    assert ["".join(found) for found in pieces] == [whole] * 4
    eventually(lambda: is_ready(own) and is_served(own), "served again")


def test_loss_of_nats_for_longer_than_workers_are_missed_costs_no_stream(own: Stack) -> None:
    """Streams that have begun wait for the bus, are placed anew and go on where they were."""
    whole = post(own.url, STREAM, own.keys["plain"]).text
    streams = [LiveStream(own.url, STREAM, own.keys["plain"]) for _ in range(4)]
    pieces = [[stream.next_text()] for stream in streams]
    own.nats.kill()
    gone = [replica for replica in own.replicas.values() if replica.service == "decode"]
    for replica in gone:
        replica.signal(signal.SIGKILL)  # and with it what it computed meanwhile: only a new place helps
        replica.wait()
    eventually(lambda: not is_ready(own), "not ready")
    own.nats.start()
    for replica in gone:
        replica.start()
    for stream, found in zip(streams, pieces, strict=True):
        *events, last = stream.rest()
        stream.close()
        assert last == DONE, last
        found += [e["choices"][0]["delta"].get("content", "") for e in events if isinstance(e, dict)]
    assert ["".join(found) for found in pieces] == [whole] * 4
    own.wait_ready(*(replica.instance for replica in gone))
    eventually(lambda: is_ready(own) and is_served(own), "served again")


@pytest.mark.parametrize("service", ["scheduler", "cache", "prefill", "decode", "ingress"])
def test_sigterm_with_live_streams_exits_0_and_ends_every_stream(own: Stack, service: str) -> None:
    """N05, NATS up."""
    replica = own.replicas[f"{service}-1"]
    streams = [LiveStream(own.url, STREAM, own.keys["demo"]) for _ in range(10)]
    for stream in streams:
        for _ in range(3):  # decode has it
            stream.next_text()
    replica.terminate()
    try:
        ends = [stream.rest()[-1] for stream in streams]
        assert replica.wait() == 0
    finally:
        for stream in streams:
            stream.close()
        replica.stop()
        replica.start()
        own.wait_ready(replica.instance)
    eventually(lambda: is_served(own), "served again")
    assert ends == [DONE] * 10


@pytest.mark.parametrize("service", ["scheduler", "cache", "prefill", "decode", "ingress"])
def test_sigterm_without_nats_exits_0_within_the_grace(own: Stack, service: str) -> None:
    """N05, NATS down: a drain does not wait for a broker that is not there."""
    replica = own.replicas[f"{service}-1"]
    with LiveStream(own.url, STREAM, own.keys["plain"]) as stream:
        stream.next_text()
        own.nats.kill()
        try:
            replica.terminate()
            assert replica.wait() == 0
        finally:
            own.nats.start()
            replica.stop()
            replica.start()
            own.wait_ready(replica.instance)
    eventually(lambda: is_served(own), "served again")


def test_servers_away_at_start_are_waited_for_and_named(own: Stack) -> None:
    """Start order is free: services say what they wait for, and serve when it is there."""
    own.stop()
    own.nats.kill()
    own.redis.kill()
    for replica in own.replicas.values():
        replica.start()
    replicas = list(own.replicas.values())
    eventually(lambda: all(r.log.count("waiting for NATS") for r in replicas), "all say what they wait for")
    assert all(replica.is_running for replica in replicas)
    num_before = len(own.replicas["cache-1"].log)
    own.nats.start()
    eventually(lambda: "Redis" in own.replicas["cache-1"].log[num_before:], "cache misses Redis")
    own.wait_ready(*(name for name in own.replicas if name != "cache-1"))
    assert post(own.url, SHORT, own.keys["demo"]).status == 200  # without a cache yet
    own.redis.start()
    own.wait_ready("cache-1")
    question = BODY | {"messages": [{"role": "user", "content": "again"}], "stop": [" ", "e", "a"]}

    def is_hit() -> bool:
        return "cache" in str(post(own.url, question, own.keys["demo"]).headers["x-sub100-tier"])

    eventually(is_hit, "a cache hit")

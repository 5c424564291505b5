"""One of two schedulers, or of two caches, hangs or is killed under load: no request fails, and hardly one
waits. With none left, requests wait a moment for one to come back, and are then told to come again."""

import contextlib
import signal
import statistics
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.raw_http import Answer, post
from tests.e2e.scrape import Scrape
from tests.e2e.system import MODEL, PATIENT, sim_only
from tests.patience import PATIENCE_S, at_best, eventually
from tests.stack import Replica, Stack, running_stack

pytestmark = sim_only

NUM_CLIENTS = 4
NUM_ANSWERS = 100
"""In one look at how long requests take."""
SLOWER = 5.0
"""What a busy machine may make of a percentile from one look to the next; a request that waits for a replica
that hangs takes a thousand times as long as one that does not."""
PATIENCE_MS = 30_000


def body(words: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": words}]
    return {"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 2, "ignore_eos": True}


@pytest.fixture(scope="module", name="own")
def _own(tiny_model: Path) -> Iterator[Stack]:
    env = {**PATIENT, "SUB100_INGRESS_PATIENCE_MS": str(PATIENCE_MS)}
    with running_stack(tiny_model, env=env) as stack:
        for service in ("scheduler", "cache"):
            stack.wait_ready(stack.add(service).instance)
        yield stack


class Load:
    """Clients that ask one question after the other; the time of each answer, and what was no answer."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._is_over = threading.Event()
        self.elapsed_s: list[float] = []
        self.faults: list[str] = []
        self._threads = [threading.Thread(target=self._run, args=(i,)) for i in range(NUM_CLIENTS)]

    def _run(self, client: int) -> None:
        while not self._is_over.is_set():
            answer = post(self._stack.url, body(f"Client {client} asks."), self._stack.keys["plain"])
            if answer.status == 200:
                self.elapsed_s.append(answer.elapsed_s)
            else:
                self.faults.append(f"{answer.status} {answer.error['code']}")

    def p90_s(self) -> float:
        """Of the next answers; fails at the first fault."""
        first = len(self.elapsed_s)
        eventually(lambda: self.faults or len(self.elapsed_s) >= first + NUM_ANSWERS, "answers")
        assert self.faults == []
        return statistics.quantiles(self.elapsed_s[first:], n=10)[-1]

    @contextlib.contextmanager
    def running(self) -> Iterator["Load"]:
        for thread in self._threads:
            thread.start()
        try:
            yield self
        finally:
            self._is_over.set()
            for thread in self._threads:
                thread.join(PATIENCE_S)
        assert self.faults == []


def is_at_rest(scheduler: Replica) -> bool:
    return Scrape(scheduler).total("sub100_placement_open") == 0


def hang(replica: Replica) -> None:
    replica.signal(signal.SIGSTOP)


def kill(replica: Replica) -> None:
    replica.signal(signal.SIGKILL)
    replica.wait()


def bring_back(stack: Stack, replica: Replica) -> None:
    replica.signal(signal.SIGCONT)
    if not replica.is_running:
        replica.start()
    stack.wait_ready(replica.instance)


@pytest.mark.parametrize("lose", [hang, kill])
@pytest.mark.parametrize("lost", ["scheduler-1", "scheduler-2"])
def test_loss_of_one_of_two_schedulers_under_load_fails_no_request(
    own: Stack, lost: str, lose: Callable[[Replica], None]
) -> None:
    replica = own.replicas[lost]
    with Load(own).running() as load:
        usual_s = load.p90_s()
        lose(replica)
        try:
            load.p90_s()
            at_best(load.p90_s, SLOWER * usual_s, "the 90th percentile beside a lost scheduler")
        finally:
            bring_back(own, replica)
        load.p90_s()
    for each in ("scheduler-1", "scheduler-2"):
        eventually(lambda name=each: is_at_rest(own.replicas[name]), f"nothing in flight at {each}")  # type: ignore[misc]


@pytest.mark.parametrize("lose", [hang, kill])
def test_loss_of_one_of_two_caches_costs_no_hit(own: Stack, lose: Callable[[Replica], None]) -> None:
    def ask() -> Answer:
        return post(own.url, body("What do you keep?") | {"stop": [" "]}, own.keys["demo"])

    def is_hit(answer: Answer) -> bool:
        assert answer.status == 200
        return "cache" in str(answer.headers["x-sub100-tier"])

    eventually(lambda: is_hit(ask()), "a hit")
    replica = own.replicas["cache-1"]
    lose(replica)
    try:
        ask()  # whoever asks first may pay for what is not known yet
        at_best(lambda: sum(not is_hit(ask()) for _ in range(20)), 1, "misses beside a lost cache")
    finally:
        bring_back(own, replica)


def test_requests_wait_for_a_scheduler_that_restarts(own: Stack) -> None:
    schedulers = [own.replicas[name] for name in ("scheduler-1", "scheduler-2")]
    with Load(own).running() as load:
        load.p90_s()
        for scheduler in schedulers:
            kill(scheduler)
        for scheduler in schedulers:
            bring_back(own, scheduler)
        load.p90_s()

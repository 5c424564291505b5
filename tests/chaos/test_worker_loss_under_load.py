"""Workers killed, hung and drained while a fleet serves: every answer is whole and its own, or says that it
broke; and afterwards nothing is left of it."""

import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos.clients import WORKERS, Clients, body_of, fleet_of_four
from tests.e2e.bus_watch import BusWatch
from tests.e2e.raw_http import DONE, post
from tests.e2e.system import sim_only
from tests.stack import Stack

pytestmark = sim_only

SERVED_SHARE = 0.9
"""At least; with one worker of each role left a request has somewhere to go at any time."""


@pytest.fixture(scope="module")
def stack(tiny_model: Path) -> Iterator[Stack]:
    with fleet_of_four(tiny_model, SUB100_DRAIN_TIMEOUT_S="20") as running:
        yield running


def lose(stack: Stack, worker_id: str, how: str) -> None:
    """Kill, hang or drain one worker, and bring it back."""
    worker = stack.replicas[worker_id]
    if how == "hang":
        worker.signal(signal.SIGSTOP)
        time.sleep(2.5)  # the fault itself: longer than a lapse of heartbeats
        worker.signal(signal.SIGCONT)
        return
    if how == "kill":
        worker.signal(signal.SIGKILL)
    else:
        worker.terminate()
    worker.wait()
    worker.start()
    stack.wait_ready(worker_id)


@pytest.mark.parametrize("how", ["kill", "hang", "drain"])
def test_answers_are_whole_and_their_own_while_workers_are_lost(
    stack: Stack, bus: BusWatch, how: str
) -> None:
    """P03, P07, P10, D06: in turn every worker of the fleet; then no request, no KV, no slot is left."""
    ingress_pid = stack.replicas["ingress-1"].pid
    clients = Clients(stack)
    order = list(WORKERS)
    random.Random(how).shuffle(order)
    try:
        for worker_id in order:
            num_before = clients.outcomes["done"]
            lose(stack, worker_id, how)
            bus.wait(lambda n=num_before: clients.outcomes["done"] >= n + 8, "served on")  # type: ignore[misc]
    finally:
        clients.stop()
    assert clients.faults == []
    num_all = clients.outcomes.total()
    assert clients.outcomes["done"] >= SERVED_SHARE * num_all, clients.outcomes
    broken = {outcome.split()[-1] for outcome in clients.outcomes if outcome != "done"}
    assert broken <= {"worker_lost", "no_capacity", "kv_expired", "kv_load_failed"}, clients.outcomes
    if how == "drain":
        assert clients.outcomes["done"] == num_all, clients.outcomes
    bus.wait_idle(*WORKERS)

    def is_empty() -> bool:
        beats = [bus.beat(worker_id) for worker_id in WORKERS]
        return all(beat is not None and beat.load.kv_usage == 0 for beat in beats)

    bus.wait(is_empty, "no KV in use")
    assert stack.replicas["ingress-1"].pid == ingress_pid
    assert stack.replicas["ingress-1"].is_running


def test_warm_prefix_of_a_killed_worker_is_served_by_another(stack: Stack, bus: BusWatch) -> None:
    """R04: placements by a prefix that died with its worker all succeed elsewhere."""
    mark = bus.mark()
    body = body_of(7) | {"max_tokens": 2}
    for _ in range(3):
        assert post(stack.url, body, stack.keys["plain"]).status == 200
    warm = Counter(msg.subject.rpartition(".")[2] for msg in bus.since(mark, ".prefill.job."))
    worker = stack.replicas[warm.most_common(1)[0][0]]
    worker.signal(signal.SIGKILL)
    try:
        answers = [post(stack.url, body, stack.keys["plain"]) for _ in range(50)]
    finally:
        worker.wait()
        worker.start()
        stack.wait_ready(worker.instance)
    assert {answer.status for answer in answers} == {200}
    assert {answer.events[-1] for answer in answers} == {DONE}


def test_bad_requests_of_one_client_harm_no_other(stack: Stack, bus: BusWatch) -> None:
    """R05: 400s and cancellations are no sign of a bad worker."""
    bad = [
        body_of(1) | {"temperature": 9},
        body_of(1) | {"messages": [{"role": "user", "content": "word " * 50_000}]},
        body_of(1) | {"tools": [{"type": "function"}]},
    ]
    clients = Clients(stack)
    try:
        statuses = Counter(post(stack.url, bad[i % 3], stack.keys["other"]).status for i in range(100))
        bus.wait(lambda: clients.outcomes["done"] >= 16, "answers")
    finally:
        clients.stop()
    assert statuses == {400: 100}
    assert set(clients.outcomes) == {"done"}

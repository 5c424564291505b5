"""Workers restarted again and again while clients ask, on the address they had and on another."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos.clients import WORKERS, Clients, fleet_of_four
from tests.e2e.bus_watch import BusWatch
from tests.e2e.system import sim_only
from tests.servers import free_port
from tests.stack import Stack

pytestmark = [sim_only, pytest.mark.long, pytest.mark.timeout(400)]

NUM_RESTARTS = 5
RECOVERED_S = 10.0


@pytest.fixture(scope="module")
def stack(tiny_model: Path) -> Iterator[Stack]:
    with fleet_of_four(tiny_model) as running:
        yield running


@pytest.mark.parametrize("address", ["same", "new"])
def test_peers_of_a_worker_that_restarts_again_and_again_go_on(
    stack: Stack, bus: BusWatch, address: str
) -> None:
    """P03: prefill, then decode, killed and restarted 5 times each. Nobody else's process ends; every answer
    under 200 is whole, a failure is one clear 5xx (for a stream that had begun one error event); ten seconds
    later, and before the next restart, nothing fails any more."""
    others = {
        name: stack.replicas[name].pid for name in ("ingress-1", "scheduler-1", "prefill-2", "decode-2")
    }
    clients = Clients(stack, streams=lambda client: client % 2 == 0)
    try:
        for name in ("prefill-1", "decode-1"):
            worker = stack.replicas[name]
            port = free_port()
            for _ in range(NUM_RESTARTS):
                worker.signal(signal.SIGKILL)
                worker.wait()
                port = free_port() if address == "new" else port
                worker.env[f"SUB100_{worker.service.upper()}_KV_PORT"] = str(port)
                worker.start()
                stack.wait_ready(name)
                failed = clients.outcomes.total() - clients.outcomes["done"]
                served = clients.outcomes["done"]
                bus.wait(
                    lambda n=served: clients.outcomes["done"] >= n + 24,  # type: ignore[misc]
                    "answers by all clients",
                    RECOVERED_S,
                )
                assert clients.outcomes.total() - clients.outcomes["done"] == failed, clients.outcomes
    finally:
        clients.stop()
    assert clients.faults == []
    broken = {outcome.split()[-1] for outcome in clients.outcomes if outcome != "done"}
    assert broken <= {"worker_lost", "no_capacity", "kv_expired", "kv_load_failed"}, clients.outcomes
    assert clients.outcomes["done"] >= 0.95 * clients.outcomes.total(), clients.outcomes
    assert {name: stack.replicas[name].pid for name in others} == others
    assert all(stack.replicas[name].is_running for name in others)
    bus.wait_idle(*WORKERS)

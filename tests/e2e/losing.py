"""Decode workers that are lost in mid answer, and brought back."""

import signal

from tests.e2e.bus_watch import BusWatch
from tests.stack import Replica, Stack


def decoder_of(stack: Stack, bus: BusWatch, mark: int) -> Replica:
    """The decode worker that has the (one) request since the mark."""
    bus.wait(lambda: bool(bus.since(mark, ".decode.job.")), "a decode job")
    return stack.replicas[bus.since(mark, ".decode.job.")[-1].subject.rpartition(".")[2]]


def revive(stack: Stack, *replicas: Replica) -> None:
    """Whether they were killed or hang."""
    for replica in replicas:
        replica.signal(signal.SIGKILL)
        replica.wait()
        replica.start()
    stack.wait_ready(*(replica.instance for replica in replicas))

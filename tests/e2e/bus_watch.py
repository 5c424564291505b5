"""A look at the region's bus from the side: who was asked, who works, who is idle.

``with watching(stack) as bus`` subscribes to everything in a thread of its own, so that tests which use
blocking clients can wait for what happens on the bus. Whoever looks at the record sees all that the server
had passed on before: what somebody has acted upon is there.
"""

import asyncio
import contextlib
import itertools
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import pytest
from tests.e2e.loop_thread import loop_thread
from tests.patience import PATIENCE_S
from tests.stack import Stack

from sub100_proto import codec
from sub100_proto.fleet import Heartbeat
from sub100_proto.jobs import Control
from sub100_proto.subjects import PREFIX, Role
from sub100_shared.bus import Bus, BusUnavailable, Incoming

_WATCH: Final = f"{PREFIX}.local.watch"
"""Where watches send to themselves: what comes before it has come."""
Told = TypeVar("Told", bound=Control)
_WORK: Final = (".scheduler.place.", ".prefill.job.", ".decode.job.")


class BusWatch:
    """What was published, in order; grows until the watch ends. ``publish`` is its own connection's, for
    other threads."""

    def __init__(self, publish: Callable[[str, bytes], None]) -> None:
        self.publish = publish
        self._own_subject = f"{_WATCH}.{secrets.token_hex(4)}"
        self._numbers = itertools.count(1)
        self._num_caught_up = 0
        self._changed = threading.Condition()
        self._messages: list[Incoming] = []
        self._beats: dict[str, Heartbeat] = {}
        self._num_beats: dict[str, int] = {}

    def on_message(self, msg: Incoming) -> None:
        with self._changed:
            if msg.subject.startswith(_WATCH):
                if msg.subject == self._own_subject:
                    self._num_caught_up = int(msg.data)
            elif ".fleet.heartbeat." in msg.subject:
                beat = codec.decode_heartbeat(msg.data)
                self._beats[beat.worker_id] = beat
                self._num_beats[beat.worker_id] = self._num_beats.get(beat.worker_id, 0) + 1
            elif ".fleet." not in msg.subject:
                self._messages.append(msg)
            self._changed.notify_all()

    def mark(self) -> int:
        """The present end of the record, for ``since``."""
        self._catch_up()
        with self._changed:
            return len(self._messages)

    def since(self, mark: int, *parts: str) -> list[Incoming]:
        """Messages after the mark whose subject, with a dot at its end, contains one of these."""
        self._catch_up()
        with self._changed:
            return [msg for msg in self._messages[mark:] if any(part in f"{msg.subject}." for part in parts)]

    def dispatched_since(self, mark: int) -> list[str]:
        """Subjects of placements asked and jobs published."""
        return [msg.subject for msg in self.since(mark, *_WORK)]

    def told_since(self, mark: int, role: Role, kind: type[Told]) -> list[Told]:
        """What workers were told, of one kind: a Ping comes whenever one is silent for a moment."""
        told = (codec.decode_control(msg.data) for msg in self.since(mark, f".{role}.control."))
        return [control for control in told if isinstance(control, kind)]

    def num_in(self, worker_id: str) -> int:
        """Requests that the worker said to have, waiting or running; -1 when it was never heard."""
        with self._changed:
            beat = self._beats.get(worker_id)
            return -1 if beat is None else beat.load.num_running + beat.load.num_waiting

    def beat(self, worker_id: str) -> Heartbeat | None:
        with self._changed:
            return self._beats.get(worker_id)

    def wait(self, is_so: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> float:
        """Wait until it is so; returns the seconds it took. ``is_so`` may call this watch."""
        started_at = time.monotonic()
        while not is_so():
            left = timeout_s - (time.monotonic() - started_at)
            assert left > 0, f"not within {timeout_s:g} s: {what}"
            with self._changed:
                self._changed.wait(min(left, 0.1))
        return time.monotonic() - started_at

    def wait_idle(self, *worker_ids: str) -> float:
        """Wait until a heartbeat *after now* says that each of these workers has nothing to do; returns the
        seconds it took."""
        self._catch_up()
        with self._changed:
            before = {worker: self._num_beats.get(worker, 0) for worker in worker_ids}

        def is_idle() -> bool:
            return all(
                self._num_beats.get(worker, 0) > num and self.num_in(worker) == 0
                for worker, num in before.items()
            )

        return self.wait(is_idle, f"idle: {worker_ids}")

    def _catch_up(self) -> None:
        """Wait for all that the server passed on before now; not while there is no connection."""
        number = next(self._numbers)
        with contextlib.suppress(BusUnavailable):
            self.publish(self._own_subject, str(number).encode())
            with self._changed:
                assert self._changed.wait_for(lambda: self._num_caught_up >= number, PATIENCE_S)


@contextlib.contextmanager
def watching(stack: Stack) -> Iterator[BusWatch]:
    """A BusWatch that is subscribed when the block starts."""
    with loop_thread("bus watch") as loop:
        bus = loop.run(Bus.connect(stack.nats.url, name="watch"))
        watch = BusWatch(lambda subject, data: loop.run(bus.publish(subject, data)))
        try:
            loop.run(bus.listen(f"{PREFIX}.local.>", watch.on_message))
            yield watch
        finally:
            loop.run(bus.close(1))


@pytest.fixture(name="bus")
def _bus(stack: Stack) -> Iterator[BusWatch]:
    """On whichever stack the module runs against."""
    with watching(stack) as found:
        yield found


def publish(stack: Stack, subject: str, data: bytes) -> None:
    """Send one message as anybody on the bus might."""

    async def send() -> None:
        bus = await Bus.connect(stack.nats.url, name="publish")
        try:
            await bus.publish(subject, data)
        finally:
            await bus.close(2)

    asyncio.run(send())

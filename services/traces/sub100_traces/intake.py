"""Between the socket and the disk: a bounded buffer and the one thread that writes.

``offer`` never waits, so a slow disk costs spans (counted), never an exporter's time or the event loop.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, Protocol

import msgspec

from .spans import Span
from .store import House

_log = logging.getLogger(__name__)

MAX_BATCH_SPANS: Final = 4096
"""Bounds one transaction, and with it how long a reader may find the list a little old."""


HOUSE_INTERVAL_S: Final = 1.0


class Sink(Protocol):
    """Where batches go: see Store."""

    def write(self, spans: Sequence[Span]) -> int: ...

    def keep_house(self) -> House: ...


class IntakeStats(msgspec.Struct, frozen=True, kw_only=True):
    """In spans since start. ``received`` = ``stored`` + ``dropped`` + ``queued`` + the batch in writing."""

    received: int
    stored: int
    dropped: int
    queued: int


class Intake:
    """Started by ``start``, ended by ``close``; ``offer`` may be called from any thread."""

    def __init__(self, sink: Sink, max_spans: int, on_change: Callable[[], None] = lambda: None) -> None:
        """``on_change`` is called from the writing thread when readers would see something new."""
        self._sink = sink
        self._on_change = on_change
        self._max_spans = max_spans
        self._queue: deque[Span] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._received = self._stored = self._dropped = 0
        # A daemon: a write that hangs on a dead disk must not keep the process alive after its deadline.
        self._thread = threading.Thread(target=self._run, name="traces-writer", daemon=True)

    @property
    def stats(self) -> IntakeStats:
        with self._changed:
            return IntakeStats(
                received=self._received,
                stored=self._stored,
                dropped=self._dropped,
                queued=len(self._queue),
            )

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive() and not self._closed

    def start(self) -> None:
        self._thread.start()

    def offer(self, spans: Sequence[Span]) -> int:
        """Queue as many of ``spans`` as there is room for; returns how many were dropped."""
        with self._changed:
            room = 0 if self._closed else self._max_spans - len(self._queue)
            self._queue.extend(islice(spans, room))
            num_dropped = max(0, len(spans) - room)
            self._received += len(spans)
            self._dropped += num_dropped
            self._changed.notify()
        return num_dropped

    def close(self, timeout_s: float) -> bool:
        """Take nothing more and write what is queued; idempotent. False if that did not end in time."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        house_due_s = 0.0
        while (batch := self._take(house_due_s)) is not None:
            if batch:
                self._write(batch)
            if time.monotonic() >= house_due_s:
                house_due_s = time.monotonic() + (0.0 if self._keep_house() else HOUSE_INTERVAL_S)

    def _take(self, house_due_s: float) -> list[Span] | None:
        """Wait for spans until the house is due; None means closed and drained."""
        with self._changed:
            timeout_s = max(0.0, house_due_s - time.monotonic())
            self._changed.wait_for(lambda: self._queue or self._closed, timeout_s)
            if self._closed and not self._queue:
                return None
            return [self._queue.popleft() for _ in range(min(len(self._queue), MAX_BATCH_SPANS))]

    def _write(self, batch: list[Span]) -> None:
        """A batch that cannot be written is lost and counted; the next one gets its own try."""
        try:
            num_stored = self._sink.write(batch)
        except Exception:
            _log.exception("write failed", extra={"num_spans": len(batch)})
            num_stored = 0
        with self._changed:
            self._stored += num_stored
            self._dropped += len(batch) - num_stored
        if num_stored:
            self._on_change()

    def _keep_house(self) -> bool:
        """True if more is left to do at once; what fails is tried again at its next time."""
        try:
            house = self._sink.keep_house()
        except Exception:
            _log.exception("housekeeping failed")
            return False
        if house.is_changed:
            self._on_change()
        return house.is_more

"""The bounded queue in front of the disk."""

import sqlite3
import threading
from collections.abc import Sequence

from tests.patience import PATIENCE_S

from sub100_traces.intake import MAX_BATCH_SPANS, Intake
from sub100_traces.spans import Span
from sub100_traces.store import House


def spans(count: int) -> list[Span]:
    return [Span(trace_id="a" * 32, span_id=f"{n:016x}", start_ns=1, end_ns=2) for n in range(1, count + 1)]


class GatedSink:
    """A disk that waits for the test before each write, and can refuse."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)
        self.batches: list[list[Span]] = []
        self.failures: list[Exception] = []
        self.num_houses = 0
        self.failing_house = 0

    def write(self, batch: Sequence[Span]) -> int:
        self.entered.release()
        assert self.gate.acquire(timeout=PATIENCE_S)
        if self.failures:
            raise self.failures.pop()
        self.batches.append(list(batch))
        return len(batch)

    def keep_house(self) -> House:
        self.num_houses += 1
        if self.num_houses == self.failing_house:
            raise sqlite3.OperationalError("disk I/O error")
        return House(is_changed=self.num_houses == 1, is_more=self.num_houses < 3)


def test_offer_drops_and_counts_the_excess_when_the_disk_is_slow() -> None:
    sink = GatedSink()
    intake = Intake(sink, max_spans=10)
    intake.start()
    assert intake.offer(spans(1)) == 0
    assert sink.entered.acquire(timeout=PATIENCE_S)  # the writer now hangs in its first write
    assert intake.offer(spans(7)) == 0
    assert intake.offer(spans(5)) == 2
    assert intake.offer(spans(5)) == 5
    stats = intake.stats
    assert (stats.received, stats.stored, stats.dropped, stats.queued) == (18, 0, 7, 10)
    sink.gate.release(2)
    assert intake.close(PATIENCE_S)
    assert (intake.stats.stored, intake.stats.dropped, intake.stats.queued) == (11, 7, 0)


def test_close_writes_what_is_queued_and_takes_nothing_more() -> None:
    sink = GatedSink()
    sink.gate.release(10)
    intake = Intake(sink, max_spans=MAX_BATCH_SPANS * 2)
    assert intake.offer(spans(MAX_BATCH_SPANS + 1)) == 0
    intake.start()
    assert intake.is_running
    assert intake.close(PATIENCE_S)
    assert [len(batch) for batch in sink.batches] == [MAX_BATCH_SPANS, 1]
    assert not intake.is_running
    assert intake.offer(spans(3)) == 3
    assert intake.close(PATIENCE_S)


def test_close_gives_up_in_time_when_the_disk_hangs() -> None:
    sink = GatedSink()
    intake = Intake(sink, max_spans=10)
    intake.start()
    intake.offer(spans(1))
    assert sink.entered.acquire(timeout=PATIENCE_S)
    assert not intake.close(0.01)
    sink.gate.release()
    assert intake.close(PATIENCE_S)


def test_intake_counts_a_refused_batch_and_goes_on() -> None:
    sink = GatedSink()
    sink.failures.append(sqlite3.OperationalError("database or disk is full"))
    intake = Intake(sink, max_spans=10)
    intake.start()
    intake.offer(spans(3))
    sink.gate.release()
    assert sink.entered.acquire(timeout=PATIENCE_S)
    intake.offer(spans(2))
    sink.gate.release(2)
    assert intake.close(PATIENCE_S)
    assert (intake.stats.stored, intake.stats.dropped) == (2, 3)


def test_close_returns_at_once_when_never_started() -> None:
    assert Intake(GatedSink(), max_spans=1).close(PATIENCE_S)


def test_intake_keeps_house_while_more_is_left_and_tells_of_changes() -> None:
    sink = GatedSink()
    changed = threading.Semaphore(0)
    intake = Intake(sink, max_spans=10, on_change=changed.release)
    intake.start()
    assert changed.acquire(timeout=PATIENCE_S)  # the house
    sink.gate.release()
    intake.offer(spans(1))
    assert changed.acquire(timeout=PATIENCE_S)  # the span
    assert intake.close(PATIENCE_S)
    assert sink.num_houses >= 3
    assert not changed.acquire(blocking=False)


def test_intake_goes_on_when_housekeeping_fails() -> None:
    sink = GatedSink()
    sink.failing_house = 1
    sink.gate.release()
    intake = Intake(sink, max_spans=10)
    intake.start()
    intake.offer(spans(1))
    assert sink.entered.acquire(timeout=PATIENCE_S)
    assert intake.close(PATIENCE_S)
    assert intake.stats.stored == 1

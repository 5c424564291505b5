"""The file and its one writer. ``write`` and ``keep_house`` belong to one thread; reads may come from any.

The newest spans stay: what is older than ``max_age_s``, beyond ``max_traces`` or beyond ``max_bytes`` goes,
oldest trace first, some at a time.
"""

import contextlib
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from sub100_shared import semconv

from .. import hops
from ..spans import Span
from ..summary import MAX_LABEL_CHARS, RequestSummary, label, summarise
from . import settling
from .facets import Facets
from .reader import Reader
from .schema import (
    ADD_REQUEST,
    ADD_SPAN,
    ADD_TRACE,
    ALL,
    PLACES,
    ROLLUPS,
    STEPS_S,
    WORKERS,
    WrongVersion,
    connect,
    prepare,
)

MAX_SPANS_PER_TRACE: Final = 4096
"""Beyond it spans of that trace are dropped: one endless trace must not fill the disk."""

MAX_DROPPED_TRACES: Final = 2000
"""Dropped in one transaction, so that a full store does not hold up what comes in."""

MIN_TRACES: Final = 1000
"""If the file is too large with fewer, then it is the rollups that are."""

_FACET_KINDS: Final = ("tenant", "region", "tier", "blame")
_ADD_WORKER: Final = """
INSERT OR IGNORE INTO request_workers
    SELECT ?, requests.seq FROM requests WHERE trace_seq = ? AND span_id = ?
"""
_encode: Final = msgspec.json.Encoder().encode


class StoreError(RuntimeError):
    """The file cannot be used as it is; the message names it."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept. ``max_bytes`` is the file's size without its log, which adds up to 16 MiB."""

    max_traces: int = 250_000
    max_age_s: float = 7 * 86_400.0
    max_bytes: int = 2**30


class House(msgspec.Struct, frozen=True, kw_only=True):
    """What housekeeping did: readers see something else, and more is left to do."""

    is_changed: bool
    is_more: bool


class Store(Reader):
    """``path`` empty: a temporary file that ``close`` removes. ``clock`` gives unix seconds. Raises
    StoreError."""

    def __init__(self, path: str, limits: Limits, clock: Callable[[], float] = time.time) -> None:
        self._limits = limits
        self._clock = clock
        self._forgets_at_s = 0.0
        with contextlib.ExitStack() as opened:
            if not path:
                directory = opened.enter_context(tempfile.TemporaryDirectory(prefix="sub100-traces-"))
                path = os.path.join(directory, "traces.db")
            try:
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
                self._writer = opened.enter_context(contextlib.closing(connect(path)))
                prepare(self._writer)
                self._facets = Facets(self._writer)
                super().__init__(path)
                opened.callback(super().close)
            except WrongVersion as error:
                raise StoreError(f"{path} {error}") from error
            except (OSError, sqlite3.Error) as error:
                raise StoreError(f"cannot use {path} as the traces file: {error}") from error
            self.path = path
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Idempotent. No read or write may be running."""
        self._opened.close()

    def write(self, spans: Sequence[Span]) -> int:
        """Keep ``spans`` in one transaction.

        Returns how many were kept; the others exceeded MAX_SPANS_PER_TRACE. A span that comes again is the
        one that is there already. Raises sqlite3.Error, and then nothing was kept.
        """
        traces: dict[str, list[Span]] = {}
        for span in spans:
            traces.setdefault(span.trace_id, []).append(span)
        now_s = self._clock()
        num_kept = 0
        with _transaction(self._writer) as database:
            for trace_id, group in traces.items():
                added = database.execute(ADD_TRACE, (trace_id, len(group), int(now_s)))
                seq, num_received = added.fetchone()
                room = max(0, MAX_SPANS_PER_TRACE - (num_received - len(group)))
                kept = group[:room]
                database.executemany(ADD_SPAN, [_span_row(seq, span) for span in kept])
                num_kept += len(kept)
                self._add_requests(database, seq, kept, now_s)
        return num_kept

    def keep_house(self) -> House:
        """Settle what is due and drop what is too much, a bounded part of it."""
        now_s = self._clock()
        with _transaction(self._writer) as database:
            num_settled = settling.settle(database, self._facets, now_s - settling.SETTLE_S)
            num_dropped = self._drop(database, now_s)
            is_large = _num_bytes(database) > self._limits.max_bytes
        is_more = num_settled == settling.MAX_SETTLED or num_dropped == MAX_DROPPED_TRACES
        return House(
            is_changed=bool(num_settled or num_dropped), is_more=is_more or bool(is_large and num_dropped)
        )

    def _add_requests(
        self,
        database: sqlite3.Connection,
        seq: int,
        spans: Sequence[Span],
        now_s: float,
    ) -> None:
        for found in filter(None, map(summarise, spans)):
            database.execute(ADD_REQUEST, _request_row(seq, found, now_s))
            for kind in _FACET_KINDS:
                if value := getattr(found, kind):
                    self._facets.seen(database, kind, value, int(now_s))
            workers = "SELECT json_extract(attributes, ?) FROM spans WHERE trace_seq = ? AND parent_id = ?"
            for [worker] in database.execute(
                workers, (f'$."{semconv.WORKER}"', seq, found.span_id)
            ).fetchall():
                if isinstance(worker, str) and worker:
                    database.execute(_ADD_WORKER, (worker[:MAX_LABEL_CHARS], seq, found.span_id))
        for span in spans:
            worker = label(span.attributes, semconv.WORKER)
            if worker and hops.read(span) is not None:
                database.execute(_ADD_WORKER, (worker, seq, span.parent_id))
                self._facets.seen(database, "worker", worker, int(now_s))

    def _drop(self, database: sqlite3.Connection, now_s: float) -> int:
        """Returns how many of the oldest traces were dropped, at most MAX_DROPPED_TRACES."""
        low, high = database.execute(
            "SELECT ifnull(min(seq), 0), ifnull(max(seq), -1) FROM traces"
        ).fetchone()
        num_excess = high - low + 1 - self._limits.max_traces  # they rise by one per trace
        cutoff_s = now_s - self._limits.max_age_s
        oldest = database.execute(
            "SELECT arrived_s FROM traces ORDER BY seq LIMIT ?", (MAX_DROPPED_TRACES,)
        ).fetchall()
        num_old = next((i for i, [at_s] in enumerate(oldest) if at_s >= cutoff_s), len(oldest))
        num_large = 0
        if _num_bytes(database) > self._limits.max_bytes:
            num_large = max(1, (high - low + 1) // 20)
        num: int = min(max(num_excess, num_old, num_large), len(oldest), MAX_DROPPED_TRACES)
        if num > 0:
            self._drop_oldest(database, num)
        if now_s >= self._forgets_at_s:
            self._forgets_at_s = now_s + min(STEPS_S)
            is_crowded = num_large and high - low < MIN_TRACES
            self._forget(database, max(cutoff_s, now_s - 3600.0) if is_crowded else cutoff_s)
        return num

    def _forget(self, database: sqlite3.Connection, cutoff_s: float) -> None:
        """Drop the rollups of steps that began before ``cutoff_s``, and names to filter by not seen since."""
        keys = [
            (step_s, level, worker, cutoff_s)
            for step_s in STEPS_S
            for level, workers in ((ALL, [""]), (PLACES, [""]), (WORKERS, self._facets.workers()))
            for worker in workers
        ]
        for table in ROLLUPS:
            database.executemany(
                f"DELETE FROM {table} WHERE step_s = ? AND level = ? AND worker = ? AND at_s < ?", keys
            )
        self._facets.forget(database, cutoff_s)

    def _drop_oldest(self, database: sqlite3.Connection, num: int) -> None:
        [last] = database.execute(
            "SELECT seq FROM traces ORDER BY seq LIMIT 1 OFFSET ?", (num - 1,)
        ).fetchone()
        database.execute("DELETE FROM spans WHERE trace_seq <= ?", (last,))
        gone = "SELECT seq FROM requests WHERE trace_seq <= ?"
        database.execute(f"DELETE FROM request_workers WHERE request_seq IN ({gone})", (last,))
        database.execute("DELETE FROM requests WHERE trace_seq <= ?", (last,))
        database.execute("DELETE FROM traces WHERE seq <= ?", (last,))


def _num_bytes(database: sqlite3.Connection) -> int:
    """In use; freed pages are used again before the file grows."""

    def pragma(name: str) -> int:
        return int(database.execute(f"PRAGMA {name}").fetchone()[0])

    return (pragma("page_count") - pragma("freelist_count")) * pragma("page_size")


@contextlib.contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield database
        database.execute("COMMIT")
    except BaseException:
        # After some errors (disk full) SQLite has rolled back by itself.
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _span_row(seq: int, span: Span) -> tuple[object, ...]:
    return (
        seq,
        span.span_id,
        span.parent_id,
        span.name,
        span.service,
        span.instance,
        span.start_ns,
        span.end_ns,
        span.is_error,
        span.status,
        _encode(span.attributes).decode(),
        _encode(span.events).decode(),
    )


def _request_row(seq: int, found: RequestSummary, now_s: float) -> tuple[Any, ...]:
    return (
        seq,
        found.span_id,
        now_s,
        found.request_id,
        found.start_ns,
        found.duration_ms,
        found.tenant,
        found.model,
        found.region,
        found.tier,
        found.status,
        found.ttft_ms,
        found.budget_ms,
        found.blame,
        found.error,
        found.network_ms,
        found.num_attempts,
        found.is_over_budget,
    )

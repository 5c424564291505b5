"""Questions to the file. A few connections, so that one slow question does not hold up the others, and a time
limit, so that none holds a thread for long."""

import contextlib
import queue
import sqlite3
import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from ..spans import Event, Span
from ..summary import RequestSummary
from . import fleet
from .filters import Filter
from .schema import SPANS, SUMMARIES, connect

NUM_CONNECTIONS: Final = 4
MAX_QUERY_S: Final = 5.0
_STEPS_PER_CHECK: Final = 50_000

_decode_attributes: Final = msgspec.json.Decoder(dict[str, Any]).decode
_decode_events: Final = msgspec.json.Decoder(list[Event]).decode


class QueryTooSlow(RuntimeError):
    """The question took longer than MAX_QUERY_S, or no connection came free in that time."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first. ``before`` is the cursor of the next page, 0 on the last one."""

    requests: list[RequestSummary]
    before: int


class Reader:
    """Callable from any thread, blocking."""

    def __init__(self, path: str) -> None:
        self._idle: queue.LifoQueue[sqlite3.Connection] = queue.LifoQueue()
        for _ in range(NUM_CONNECTIONS):
            self._idle.put(connect(path))

    def close(self) -> None:
        """No question may be running."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._idle.get_nowait().close()

    def page(self, wanted: Filter, limit: int) -> Page:
        """The ``limit`` latest to arrive (a sender's clock has no say in it)."""
        where, values = wanted.where()
        tail = f"WHERE {where} " if where else ""
        found = self._summaries(f"{tail}ORDER BY requests.seq DESC LIMIT ?", *values, limit + 1)
        shown = found[:limit]
        return Page(requests=shown, before=shown[-1].seq if len(found) > limit else 0)

    def slowest(self, since_s: float, limit: int, wanted: fleet.FleetFilter) -> list[RequestSummary]:
        """The requests that were furthest over their budget."""
        terms, values = ["requests.is_late = 1", "requests.arrived_s >= ?"], [since_s]
        bound: list[object] = [*values]
        for name in ("region", "tier", "worker"):
            if value := getattr(wanted, name):
                terms.append(f"requests.{name} = ?")
                bound.append(value)
        order = "ORDER BY network_ms + ttft_ms - budget_ms DESC LIMIT ?"
        return self._summaries(f"WHERE {' AND '.join(terms)} {order}", *bound, limit)

    def request(self, request_id: str) -> RequestSummary | None:
        """The latest request of that id, None if it is not (or no longer) kept."""
        found = self._summaries("WHERE request_id = ? ORDER BY requests.seq DESC LIMIT 1", request_id)
        return found[0] if found else None

    def spans(self, trace_id: str) -> list[Span]:
        """All kept spans of a trace by start; empty if it is not kept."""
        return [
            Span(
                trace_id=row[0],
                span_id=row[1],
                parent_id=row[2],
                name=row[3],
                service=row[4],
                instance=row[5],
                start_ns=row[6],
                end_ns=row[7],
                is_error=bool(row[8]),
                status=row[9],
                attributes=_decode_attributes(row[10]),
                events=_decode_events(row[11]),
            )
            for row in self._query(SPANS, trace_id)
        ]

    def facets(self) -> dict[str, list[str]]:
        """The values that filters may offer, by kind, in alphabetical order."""
        found: dict[str, list[str]] = {}
        for kind, value in self._query("SELECT kind, value FROM facets ORDER BY kind, value"):
            found.setdefault(kind, []).append(value)
        return found

    def fleet(self, wanted: fleet.FleetFilter, now_s: float) -> fleet.Fleet:
        with self._connection() as database:
            return fleet.read(database, wanted, now_s)

    def num_requests(self) -> int:
        return int(self._query("SELECT count(*) FROM requests")[0][0])

    def num_traces(self) -> int:
        return int(self._query("SELECT count(*) FROM traces")[0][0])

    def _summaries(self, tail: str, *values: object) -> list[RequestSummary]:
        return [RequestSummary(*row) for row in self._query(f"{SUMMARIES} {tail}", *values)]

    def _query(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with self._connection() as database:
            return database.execute(sql, values).fetchall()

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Raises QueryTooSlow."""
        try:
            database = self._idle.get(timeout=MAX_QUERY_S)
        except queue.Empty:
            raise QueryTooSlow from None
        deadline = time.monotonic() + MAX_QUERY_S
        database.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_PER_CHECK)
        try:
            yield database
        except sqlite3.OperationalError as error:
            if "interrupted" in str(error):
                raise QueryTooSlow from error
            raise
        finally:
            self._idle.put(database)

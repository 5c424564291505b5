"""The spans on disk: SQLite in WAL mode, one writer, one reader, the newest traces only.

Both connections are plain and blocking: call ``write`` from one thread, and everything else off the event
loop. Rows of one trace lie together (its sequence number leads the key), so that reading a waterfall
and dropping the oldest traces are both range scans.
"""

import contextlib
import os
import sqlite3
import tempfile
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from .spans import Event, Span
from .summary import RequestSummary, summarise

MAX_SPANS_PER_TRACE: Final = 4096
"""Beyond it spans of that trace are dropped: one endless trace must not fill the disk."""

_VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE traces (seq INTEGER PRIMARY KEY, trace_id TEXT NOT NULL UNIQUE, num_received INTEGER NOT NULL);
CREATE TABLE spans (
    trace_seq INTEGER, span_id TEXT, parent_id TEXT, name TEXT, service TEXT, instance TEXT,
    start_ns INTEGER, end_ns INTEGER, is_error INTEGER, status TEXT, attributes TEXT, events TEXT,
    PRIMARY KEY (trace_seq, span_id)
) WITHOUT ROWID;
CREATE TABLE requests (
    seq INTEGER PRIMARY KEY, trace_seq INTEGER NOT NULL, span_id TEXT NOT NULL, request_id TEXT NOT NULL,
    start_ns INTEGER, duration_ms REAL, tenant TEXT, model TEXT, region TEXT, tier TEXT, status INTEGER,
    ttft_ms REAL, budget_ms REAL, blame TEXT, error TEXT,
    UNIQUE (trace_seq, span_id)
);
CREATE INDEX requests_by_id ON requests (request_id);
PRAGMA user_version = 1;
"""
_ADD_TRACE: Final = """
INSERT INTO traces (trace_id, num_received) VALUES (?, ?)
ON CONFLICT (trace_id) DO UPDATE SET num_received = num_received + excluded.num_received
RETURNING seq, num_received
"""
_ADD_SPAN: Final = "INSERT OR REPLACE INTO spans VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ADD_REQUEST: Final = """
INSERT OR REPLACE INTO requests (trace_seq, span_id, request_id, start_ns, duration_ms, tenant, model,
    region, tier, status, ttft_ms, budget_ms, blame, error) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_REQUESTS: Final = """
SELECT request_id, trace_id, span_id, start_ns, duration_ms, tenant, model, region, tier, status,
    ttft_ms, budget_ms, blame, error FROM requests JOIN traces ON traces.seq = requests.trace_seq
"""
_SPANS: Final = """
SELECT trace_id, span_id, parent_id, name, service, instance, start_ns, end_ns, is_error, status,
    attributes, events FROM spans JOIN traces ON traces.seq = spans.trace_seq
    WHERE trace_id = ? ORDER BY start_ns, span_id
"""

_encode: Final = msgspec.json.Encoder().encode
_decode_attributes: Final = msgspec.json.Decoder(dict[str, Any]).decode
_decode_events: Final = msgspec.json.Decoder(list[Event]).decode


class StoreError(RuntimeError):
    """The file cannot be used as it is; the message names it."""


class Store:
    """``path`` empty: a temporary file that ``close`` removes. Raises StoreError."""

    def __init__(self, path: str, max_traces: int) -> None:
        self._max_traces = max_traces
        self._reading = threading.Lock()
        with contextlib.ExitStack() as opened:
            if not path:
                directory = opened.enter_context(tempfile.TemporaryDirectory(prefix="sub100-traces-"))
                path = os.path.join(directory, "traces.db")
            try:
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
                self._writer = opened.enter_context(contextlib.closing(_connect(path)))
                self._reader = opened.enter_context(contextlib.closing(_connect(path)))
                _prepare(self._writer, path)
            except (OSError, sqlite3.Error) as error:
                raise StoreError(f"cannot use {path} as the traces file: {error}") from error
            self.path = path
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Idempotent. No read or write may be running."""
        self._opened.close()

    def write(self, spans: Sequence[Span]) -> int:
        """Keep ``spans`` in one transaction and drop the oldest traces beyond the bound.

        Returns how many were kept; the others exceeded MAX_SPANS_PER_TRACE. A span that comes again
        replaces itself. Raises sqlite3.Error, and then nothing was kept.
        """
        traces: dict[str, list[Span]] = {}
        for span in spans:
            traces.setdefault(span.trace_id, []).append(span)
        num_kept = 0
        newest = 0
        with _transaction(self._writer) as database:
            for trace_id, group in traces.items():
                seq, num_received = database.execute(_ADD_TRACE, (trace_id, len(group))).fetchone()
                room = max(0, MAX_SPANS_PER_TRACE - (num_received - len(group)))
                kept = group[:room]
                database.executemany(_ADD_SPAN, [_span_row(seq, span) for span in kept])
                database.executemany(_ADD_REQUEST, _request_rows(seq, kept))
                num_kept += len(kept)
                newest = max(newest, seq)
            # Sequence numbers rise by one per trace, so this leaves at most max_traces of them.
            oldest_dropped = newest - self._max_traces
            database.execute("DELETE FROM spans WHERE trace_seq <= ?", (oldest_dropped,))
            database.execute("DELETE FROM requests WHERE trace_seq <= ?", (oldest_dropped,))
            database.execute("DELETE FROM traces WHERE seq <= ?", (oldest_dropped,))
        return num_kept

    def requests(self, limit: int) -> list[RequestSummary]:
        """The last ``limit`` requests, the latest to arrive first (a sender's clock has no say in it)."""
        return self._summaries("ORDER BY requests.seq DESC LIMIT ?", limit)

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
            for row in self._query(_SPANS, trace_id)
        ]

    def num_traces(self) -> int:
        count: int = self._query("SELECT count(*) FROM traces")[0][0]
        return count

    def _summaries(self, tail: str, value: object) -> list[RequestSummary]:
        rows = self._query(f"{_REQUESTS} {tail}", value)
        return [
            RequestSummary(**dict(zip(RequestSummary.__struct_fields__, row, strict=True))) for row in rows
        ]

    def _query(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with self._reading:
            return self._reader.execute(sql, values).fetchall()


def _prepare(database: sqlite3.Connection, path: str) -> None:
    """Make the tables of a new file; raises StoreError for a file of another version."""
    version: int = database.execute("PRAGMA user_version").fetchone()[0]
    if version == 0:
        database.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
    elif version != _VERSION:
        raise StoreError(f"{path} has schema {version}, this program writes {_VERSION}: move it away")


def _connect(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=5, isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    return database


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
        _encode(span.attributes),
        _encode(span.events),
    )


def _request_rows(seq: int, spans: Sequence[Span]) -> Iterator[tuple[object, ...]]:
    for found in filter(None, map(summarise, spans)):
        yield (
            seq,
            found.span_id,
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
        )

"""Tables and statements: SQLite in WAL mode, rows of one trace together, rollups beside them.

``traces.seq`` leads the spans' key, so that reading a waterfall and dropping the oldest traces are both range
scans. ``requests`` has one row a request, complete for the list; ``path`` is NULL until the request is
settled (see settling). The three rollups count settled requests per step of time and are all that the fleet
page reads.
"""

import sqlite3
from typing import Final

VERSION: Final = 2
_SCHEMA: Final = """
CREATE TABLE traces (
    seq INTEGER PRIMARY KEY, trace_id TEXT NOT NULL UNIQUE, num_received INTEGER NOT NULL,
    arrived_s INTEGER NOT NULL
);
CREATE TABLE spans (
    trace_seq INTEGER, span_id TEXT, parent_id TEXT, name TEXT, service TEXT, instance TEXT,
    start_ns INTEGER, end_ns INTEGER, is_error INTEGER, status TEXT, attributes TEXT, events TEXT,
    PRIMARY KEY (trace_seq, span_id)
) WITHOUT ROWID;
CREATE TABLE requests (
    seq INTEGER PRIMARY KEY, trace_seq INTEGER NOT NULL, span_id TEXT NOT NULL, arrived_s REAL NOT NULL,
    request_id TEXT NOT NULL, start_ns INTEGER, duration_ms REAL, tenant TEXT, model TEXT, region TEXT,
    tier TEXT, status INTEGER, ttft_ms REAL, budget_ms REAL, blame TEXT, error TEXT, network_ms REAL,
    num_attempts INTEGER, is_late INTEGER, worker TEXT, path TEXT,
    UNIQUE (trace_seq, span_id)
);
CREATE INDEX requests_by_id ON requests (request_id);
CREATE INDEX requests_by_tenant ON requests (tenant);
CREATE INDEX requests_late ON requests (seq) WHERE is_late = 1;
CREATE INDEX requests_failed ON requests (seq) WHERE error != '';
CREATE INDEX requests_unsettled ON requests (arrived_s) WHERE path IS NULL;
CREATE TABLE request_workers (
    worker TEXT, request_seq INTEGER, PRIMARY KEY (worker, request_seq)
) WITHOUT ROWID;
CREATE INDEX request_workers_by_request ON request_workers (request_seq);
CREATE TABLE facets (
    kind TEXT, value TEXT, seen_s INTEGER, PRIMARY KEY (kind, value)
) WITHOUT ROWID;
CREATE TABLE hop_buckets (
    step_s INTEGER, level INTEGER, worker TEXT, at_s INTEGER, region TEXT, tier TEXT, hop TEXT,
    bucket INTEGER, n INTEGER,
    PRIMARY KEY (step_s, level, worker, at_s, region, tier, hop, bucket)
) WITHOUT ROWID;
CREATE TABLE hop_totals (
    step_s INTEGER, level INTEGER, worker TEXT, at_s INTEGER, region TEXT, tier TEXT, hop TEXT,
    n INTEGER, num_over INTEGER, allotted_ms REAL, spent_ms REAL, bus_ms REAL,
    PRIMARY KEY (step_s, level, worker, at_s, region, tier, hop)
) WITHOUT ROWID;
CREATE TABLE outcomes (
    step_s INTEGER, level INTEGER, worker TEXT, at_s INTEGER, region TEXT, tier TEXT, outcome TEXT, n INTEGER,
    PRIMARY KEY (step_s, level, worker, at_s, region, tier, outcome)
) WITHOUT ROWID;
"""

ROLLUPS: Final = ("hop_buckets", "hop_totals", "outcomes")
STEPS_S: Final = (60, 1800)
"""Rollups are kept by the minute for short ranges and by the half hour for long ones."""
ALL, PLACES, WORKERS = 0, 1, 2
"""Levels: one row for everything; one a region and tier; one a region, tier and worker. Each question reads
the coarsest that can answer it, so that the number of workers costs nothing where nobody asks for one."""

ADD_TRACE: Final = """
INSERT INTO traces (trace_id, num_received, arrived_s) VALUES (?, ?, ?)
ON CONFLICT (trace_id) DO UPDATE SET num_received = num_received + excluded.num_received
RETURNING seq, num_received
"""
ADD_SPAN: Final = "INSERT OR IGNORE INTO spans VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
ADD_REQUEST: Final = """
INSERT OR IGNORE INTO requests (trace_seq, span_id, arrived_s, request_id, start_ns, duration_ms, tenant,
model,
    region, tier, status, ttft_ms, budget_ms, blame, error, network_ms, num_attempts, is_late)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
SUMMARIES: Final = """
SELECT requests.seq, request_id, trace_id, span_id, start_ns, duration_ms, tenant, model, region, tier,
status,
    ttft_ms, budget_ms, blame, error, network_ms, num_attempts, ifnull(worker, ''), ifnull(path, '')
FROM requests JOIN traces ON traces.seq = requests.trace_seq
"""
SPANS: Final = """
SELECT trace_id, span_id, parent_id, name, service, instance, start_ns, end_ns, is_error, status, attributes,
    events FROM spans JOIN traces ON traces.seq = spans.trace_seq
    WHERE trace_id = ? ORDER BY start_ns, span_id
"""


class WrongVersion(Exception):
    """The file was written by a program with another schema."""

    def __init__(self, found: int) -> None:
        super().__init__(f"has schema {found}, this program writes {VERSION}: move it away")


def prepare(database: sqlite3.Connection) -> None:
    """Make the tables of a new file; raises WrongVersion."""
    version: int = database.execute("PRAGMA user_version").fetchone()[0]
    if version == 0:
        database.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
    elif version != VERSION:
        raise WrongVersion(version)


def connect(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=5, isolation_level=None, check_same_thread=False)
    # Rows of a table without rowid that exceed a quarter of a page cost a page of their own.
    database.execute("PRAGMA page_size = 8192")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    database.execute("PRAGMA journal_size_limit = 16777216")
    return database

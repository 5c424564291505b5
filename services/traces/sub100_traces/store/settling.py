"""Requests whose hops have all arrived: their path, their worker, and their place in the rollups.

A hop's span may come in a later batch than the root's, so a request is settled SETTLE_S after it arrived,
once. What comes later still shows on the waterfall and no longer counts. Time in rollups is time of arrival
on this service's own clock: no sender's clock can put a request into another day.
"""

import sqlite3
from collections import Counter, defaultdict
from typing import Any, Final

import msgspec

from .. import histogram, hops
from ..spans import Span
from ..summary import RequestSummary
from .facets import OTHER, Facets
from .schema import ALL, PLACES, STEPS_S, SUMMARIES, WORKERS

SETTLE_S: Final = 1.5
MAX_SETTLED: Final = 2000
"""Bounds one transaction."""

TTFT: Final = "ttft"
"""The pseudo-hop that is network + TTFT; its allotment is the budget."""
OK: Final = "ok"
FAILED: Final = "failed"
UNBLAMED: Final = "late"
"""Outcomes; all others are names of blamed hops."""

_DUE: Final = (
    f"{SUMMARIES} WHERE path IS NULL AND requests.arrived_s <= ? ORDER BY requests.arrived_s LIMIT ?"
)
_CHILDREN: Final = """
SELECT span_id, name, start_ns, end_ns, attributes FROM spans
    WHERE trace_seq = (SELECT seq FROM traces WHERE trace_id = ?) AND parent_id = ?
"""
_SETTLED: Final = "UPDATE requests SET path = ?, worker = ? WHERE seq = ? RETURNING arrived_s"
_ADD_BUCKET: Final = """
INSERT INTO hop_buckets VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET n = n + excluded.n
"""
_ADD_TOTAL: Final = """
INSERT INTO hop_totals VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET n = n + excluded.n, num_over = num_over + excluded.num_over,
    allotted_ms = allotted_ms + excluded.allotted_ms, spent_ms = spent_ms + excluded.spent_ms,
    bus_ms = bus_ms + excluded.bus_ms
"""
_ADD_OUTCOME: Final = """
INSERT INTO outcomes VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET n = n + excluded.n
"""
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


class Rollup:
    """Counts of one transaction: a busy minute is one row an outcome, however many requests it had."""

    def __init__(self, facets: Facets) -> None:
        self._facets = facets
        self._buckets: Counter[tuple[Any, ...]] = Counter()
        self._totals: dict[tuple[Any, ...], list[float]] = {}
        self._outcomes: Counter[tuple[Any, ...]] = Counter()

    def add(self, request: RequestSummary, path: hops.Path, arrived_s: float) -> None:
        region = self._facets.known("region", request.region)
        tier = self._facets.known("tier", request.tier)
        worker = self._facets.known("worker", path.worker)
        allotted: dict[str, float] = {}
        bus: defaultdict[str, float] = defaultdict(float)
        for hop in path.hops:
            allotted[hop.name] = max(allotted.get(hop.name, 0.0), hop.allotted_ms or 0.0)
            bus[hop.name] += hop.bus_ms
        spent_ms: dict[str, float] = {}
        for name, ms in path.spent_ms.items():
            name = name if name in hops.ORDER else OTHER
            spent_ms[name] = spent_ms.get(name, 0.0) + ms
        if request.spent_ms is not None:
            spent_ms[TTFT] = request.spent_ms
            allotted[TTFT] = request.budget_ms or 0.0
        buckets = [(name, histogram.bucket(ms)) for name, ms in spent_ms.items()]
        for step_s in STEPS_S:
            at_s = int(arrived_s) // step_s * step_s
            levels = [(step_s, ALL, "", at_s, "", ""), (step_s, PLACES, "", at_s, region, tier)]
            if worker:
                levels.append((step_s, WORKERS, worker, at_s, region, tier))
            for level in levels:
                self._outcomes[(*level, self._outcome(request))] += 1
                for name_and_bucket in buckets:
                    self._buckets[(*level, *name_and_bucket)] += 1
                for name, ms in spent_ms.items():
                    total = self._totals.setdefault((*level, name), [0.0] * 5)
                    share_ms = allotted.get(name, 0.0)
                    total[0] += 1
                    total[1] += bool(share_ms and ms > share_ms)
                    total[2] += share_ms
                    total[3] += ms
                    total[4] += bus[name]

    def _outcome(self, request: RequestSummary) -> str:
        """Failed, blamed on a hop, late without anybody to blame, or ok."""
        if request.error:
            return FAILED
        blame = self._facets.known("blame", request.blame)
        return blame or (UNBLAMED if request.is_over_budget else OK)

    def write(self, database: sqlite3.Connection) -> None:
        database.executemany(_ADD_BUCKET, [(*key, n) for key, n in self._buckets.items()])
        database.executemany(_ADD_TOTAL, [(*key, *values) for key, values in self._totals.items()])
        database.executemany(_ADD_OUTCOME, [(*key, n) for key, n in self._outcomes.items()])


def settle(database: sqlite3.Connection, facets: Facets, due_s: float) -> int:
    """Settle what arrived before ``due_s``, inside the caller's transaction; returns how many."""
    rows = database.execute(_DUE, (due_s, MAX_SETTLED)).fetchall()
    rollup = Rollup(facets)
    for row in rows:
        request = RequestSummary(*row)
        children = database.execute(_CHILDREN, (request.trace_id, request.span_id))
        found = filter(None, (hops.read(_span(request.trace_id, child)) for child in children))
        path = hops.path(request, list(found))
        [arrived_s] = database.execute(_SETTLED, (path.encoded, path.worker, request.seq)).fetchone()
        rollup.add(request, path, arrived_s)
    rollup.write(database)
    return len(rows)


def _span(trace_id: str, row: tuple[Any, ...]) -> Span:
    span_id, name, start_ns, end_ns, attributes = row
    return Span(
        trace_id=trace_id,
        span_id=span_id,
        name=name,
        start_ns=start_ns,
        end_ns=end_ns,
        attributes=_decode(attributes),
    )

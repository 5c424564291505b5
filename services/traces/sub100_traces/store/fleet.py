"""The fleet over a range of time: percentiles per hop and over time, outcomes over time. Reads rollups
only."""

import sqlite3
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from .. import histogram
from .filters import MAX_TEXT_CHARS, InvalidFilter
from .schema import ALL, PLACES, STEPS_S, WORKERS
from .settling import TTFT

RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "15m": (900, 60),
    "1h": (3600, 60),
    "3h": (10_800, 300),
    "24h": (86_400, 1800),
    "7d": (604_800, 10_800),
}
"""Name -> (length, step of the charts), in seconds. A step is a multiple of a rollup's."""

SHARES: Final = (0.5, 0.9, 0.99)


class FleetFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Empty means any."""

    range: str = "1h"
    region: str = ""
    tier: str = ""
    worker: str = ""


class HopStats(msgspec.Struct, frozen=True, kw_only=True):
    """One hop of the critical path over the range; ``over_share`` of the requests overran its allotment."""

    hop: str
    num: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    allotted_ms: float | None
    bus_ms: float
    over_share: float


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the charts. Percentiles are None while nothing was measured."""

    at_s: int
    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    outcomes: dict[str, int]


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """``moments`` covers the whole range by ``step_s``, the empty ones too."""

    step_s: int
    num: int
    outcomes: dict[str, int]
    ttft: HopStats | None
    hops: list[HopStats]
    moments: list[Moment]


def parse(query: Mapping[str, str]) -> FleetFilter:
    """Raises InvalidFilter."""
    span = query.get("range", "1h") or "1h"
    if span not in RANGES:
        raise InvalidFilter("range", f"one of {', '.join(RANGES)}")
    values = {name: query.get(name, "").strip()[:MAX_TEXT_CHARS] for name in ("region", "tier", "worker")}
    return FleetFilter(range=span, **values)


def read(database: sqlite3.Connection, wanted: FleetFilter, now_s: float) -> Fleet:
    """The range that ends now, in whole steps."""
    length_s, step_s = RANGES[wanted.range]
    rollup_s = max(step for step in STEPS_S if step_s % step == 0)
    end_s = (int(now_s) // step_s + 1) * step_s
    start_s = end_s - length_s
    where, bound = _where(wanted, rollup_s, start_s)

    def rows(sql: str) -> list[tuple[Any, ...]]:
        return database.execute(sql.format(where=where, step=step_s), bound).fetchall()

    hops: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for hop, bucket, n in rows(
        "SELECT hop, bucket, sum(n) FROM hop_buckets WHERE {where} GROUP BY hop, bucket"
    ):
        hops[hop][bucket] = n
    totals = {
        row[0]: row[1:]
        for row in rows(
            "SELECT hop, sum(n), sum(num_over), sum(allotted_ms), sum(bus_ms) FROM hop_totals "
            "WHERE {where} GROUP BY hop"
        )
    }
    times: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for at_s, bucket, n in rows(
        f"SELECT at_s / {{step}} * {{step}} AS at, bucket, sum(n) FROM hop_buckets "
        f"WHERE {{where}} AND hop = '{TTFT}' GROUP BY at, bucket"
    ):
        times[at_s][bucket] = n
    outcomes: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for at_s, outcome, n in rows(
        "SELECT at_s / {step} * {step} AS at, outcome, sum(n) FROM outcomes "
        "WHERE {where} GROUP BY at, outcome"
    ):
        outcomes[at_s][outcome] = n
    stats = [_stats(hop, counts, totals.get(hop)) for hop, counts in hops.items()]
    all_outcomes = _sum(outcomes.values())
    return Fleet(
        step_s=step_s,
        num=sum(all_outcomes.values()),
        outcomes=all_outcomes,
        ttft=next((found for found in stats if found.hop == TTFT), None),
        hops=[found for found in stats if found.hop != TTFT],
        moments=[
            _moment(at_s, times.get(at_s, {}), outcomes.get(at_s, {}))
            for at_s in range(start_s, end_s, step_s)
        ],
    )


def _where(wanted: FleetFilter, rollup_s: int, start_s: int) -> tuple[str, list[object]]:
    level = WORKERS if wanted.worker else PLACES if wanted.region or wanted.tier else ALL
    terms = ["step_s = ?", "level = ?", "worker = ?", "at_s >= ?"]
    values: list[object] = [rollup_s, level, wanted.worker, start_s]
    for name in ("region", "tier"):
        if value := getattr(wanted, name):
            terms.append(f"{name} = ?")
            values.append(value)
    return " AND ".join(terms), values


def _stats(hop: str, counts: Mapping[int, int], totals: tuple[Any, ...] | None) -> HopStats:
    p50, p90, p99 = histogram.percentiles(counts, SHARES)
    num, num_over, allotted_ms, bus_ms = totals or (sum(counts.values()), 0, 0.0, 0.0)
    return HopStats(
        hop=hop,
        num=num,
        p50_ms=p50 or 0.0,
        p90_ms=p90 or 0.0,
        p99_ms=p99 or 0.0,
        allotted_ms=allotted_ms / num if allotted_ms else None,
        bus_ms=bus_ms / num,
        over_share=num_over / num,
    )


def _moment(at_s: int, counts: Mapping[int, int], outcomes: dict[str, int]) -> Moment:
    p50, p90, p99 = histogram.percentiles(counts, SHARES)
    return Moment(at_s=at_s, p50_ms=p50, p90_ms=p90, p99_ms=p99, outcomes=outcomes)


def _sum(many: Any) -> dict[str, int]:
    total: dict[str, int] = {}
    for counts in many:
        for name, n in counts.items():
            total[name] = total.get(name, 0) + n
    return total

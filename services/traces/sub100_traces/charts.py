"""The fleet's numbers -> coordinates in per cent of a chart. Pure; the templates draw."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from .hops import ORDER
from .store import Fleet, HopStats
from .store.fleet import Moment
from .store.settling import FAILED, OK, UNBLAMED

NUM_LABELS: Final = 6


class Axis(msgspec.Struct, frozen=True, kw_only=True):
    """``ticks``: value and height from the top, in per cent. ``labels``: text and distance from the left."""

    top: float
    ticks: list[tuple[float, float]]
    labels: list[tuple[str, float]]


class Lines(msgspec.Struct, frozen=True, kw_only=True):
    """``series``: name and pieces; each piece is the ``points`` of a polyline without a gap."""

    axis: Axis
    series: list[tuple[str, list[str]]]
    budget: float | None
    hits: list[tuple[Moment, float, float]]


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """One column: left edge, width, and from the bottom up (outcome, top, height), all in per cent."""

    moment: Moment
    left: float
    width: float
    pieces: list[tuple[str, float, float]]
    num: int
    num_missed: int


class Stacks(msgspec.Struct, frozen=True, kw_only=True):
    axis: Axis
    columns: list[Stack]
    outcomes: list[tuple[str, int]]
    num_missed: int


class HopRow(msgspec.Struct, frozen=True, kw_only=True):
    """One hop on a scale that all share: positions in per cent."""

    stats: HopStats
    p50: float
    p90: float
    p99: float
    allotted: float | None


def lines(fleet: Fleet) -> Lines:
    """Percentiles of the time to first token, over time. The scale holds the budget and every p90, and clips
    what is more than three times higher: one bad minute must not flatten all others."""
    budget_ms = fleet.ttft.allotted_ms if fleet.ttft is not None else None
    p99s = [moment.p99_ms for moment in fleet.moments if moment.p99_ms is not None]
    p90s = [moment.p90_ms for moment in fleet.moments if moment.p90_ms is not None]
    base = max([budget_ms or 100.0, *p90s])
    top = nice(min(max([base, *p99s]), base * 3) * 1.05)
    num = len(fleet.moments)
    series: list[tuple[str, list[str]]] = []
    for name in ("p99", "p90", "p50"):
        values = [getattr(moment, f"{name}_ms") for moment in fleet.moments]
        series.append((name, list(_polylines(values, top))))
    return Lines(
        axis=_axis(fleet, top),
        series=series,
        budget=None if budget_ms is None else _down(budget_ms, top),
        hits=[(moment, i / num * 100, 100 / num) for i, moment in enumerate(fleet.moments)],
    )


def stacks(fleet: Fleet) -> Stacks:
    """Share of requests that failed or missed their budget, by the hop to blame, over time."""
    present = {outcome for moment in fleet.moments for outcome in moment.outcomes}
    others = sorted(present - {*ORDER, OK, UNBLAMED, FAILED})
    order = (*ORDER, *others, UNBLAMED, FAILED)
    shares = [_missed(moment) / total for moment in fleet.moments if (total := sum(moment.outcomes.values()))]
    top = nice(max([0.01, *shares]) * 100)
    num = len(fleet.moments)
    columns: list[Stack] = []
    for i, moment in enumerate(fleet.moments):
        total = sum(moment.outcomes.values())
        at = 100.0
        pieces: list[tuple[str, float, float]] = []
        for name in order:
            if count := moment.outcomes.get(name, 0):
                height = count / total * 100 / top * 100
                at -= height
                pieces.append((name, at, height))
        columns.append(
            Stack(
                moment=moment,
                left=(i + 0.08) / num * 100,
                width=0.84 / num * 100,
                pieces=pieces,
                num=total,
                num_missed=_missed(moment),
            )
        )
    found = [(name, fleet.outcomes[name]) for name in order if name in fleet.outcomes]
    return Stacks(
        axis=_axis(fleet, top), columns=columns, outcomes=found, num_missed=sum(n for _, n in found)
    )


def hop_rows(fleet: Fleet) -> list[HopRow]:
    """In the order of a request, all on one scale that ends beyond the largest p99 and allotment."""
    known = {name: i for i, name in enumerate(ORDER)}
    ordered = sorted(fleet.hops, key=lambda stats: (known.get(stats.hop, len(known)), stats.hop))
    top = nice(max([1.0, *(max(stats.p99_ms, stats.allotted_ms or 0.0) for stats in ordered)]))
    return [
        HopRow(
            stats=stats,
            p50=stats.p50_ms / top * 100,
            p90=stats.p90_ms / top * 100,
            p99=stats.p99_ms / top * 100,
            allotted=None if stats.allotted_ms is None else stats.allotted_ms / top * 100,
        )
        for stats in ordered
    ]


def nice(at_least: float) -> float:
    """The smallest of 1, 1.5, 2, 3, 4, 5, 6, 8 times a power of ten that is not below ``at_least`` (> 0)."""
    power = 1e-6
    while power * 10 < at_least:
        power *= 10
    steps = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)
    return float(f"{next(step * power for step in steps if step * power >= at_least * (1 - 1e-9)):.6g}")


def moment_name(at_s: int, step_s: int) -> str:
    """UTC; with the day where steps are long."""
    return f"{datetime.fromtimestamp(at_s, UTC):{'%d %b %H:%M' if step_s >= 1800 else '%H:%M'}}"


def _missed(moment: Moment) -> int:
    return sum(count for name, count in moment.outcomes.items() if name != OK)


def _axis(fleet: Fleet, top: float) -> Axis:
    num = len(fleet.moments)
    every = max(1, num // NUM_LABELS)
    labels = [
        (moment_name(fleet.moments[i].at_s, fleet.step_s), (i + 0.5) / num * 100)
        for i in range(every // 2, num, every)
    ]
    num_steps = next(n for n in (4, 5, 3) if _is_round(top / n))
    ticks = [(top * i / num_steps, 100 - 100 * i / num_steps) for i in range(num_steps + 1)]
    return Axis(top=top, ticks=ticks, labels=labels)


def _is_round(value: float) -> bool:
    """One digit, or two that end in 5."""
    digits = f"{value:.6e}".partition("e")[0].rstrip("0").replace(".", "")
    return len(digits) == 1 or (len(digits) == 2 and digits[1] == "5")


def _down(value: float, top: float) -> float:
    return max(0.0, 100 - value / top * 100)


def _polylines(values: Sequence[float | None], top: float) -> Iterable[str]:
    """Runs of values as points; a lone one gets a width, so that it can be seen."""
    num = len(values)
    run: list[str] = []
    for i, value in enumerate((*values, None)):
        if value is not None:
            run.append(f"{(i + 0.5) / num * 100:.2f},{_down(value, top):.2f}")
            continue
        if len(run) == 1:
            x, _, y = run[0].partition(",")
            half = 0.3 / num * 100
            run = [f"{float(x) - half:.2f},{y}", f"{float(x) + half:.2f},{y}"]
        if run:
            yield " ".join(run)
        run = []

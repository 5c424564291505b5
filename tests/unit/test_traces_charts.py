"""Numbers -> coordinates."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sub100_traces import charts
from sub100_traces.store import Fleet, HopStats
from sub100_traces.store.fleet import Moment

STATS: dict[str, Any] = {
    "num": 1,
    "p50_ms": 40.0,
    "p90_ms": 70.0,
    "p99_ms": 130.0,
    "bus_ms": 0.0,
    "over_share": 0.1,
}
TTFT = HopStats(hop="ttft", allotted_ms=100.0, **STATS)


def moment(index: int, ms: float | None = None, **outcomes: int) -> Moment:
    return Moment(at_s=index * 60, p50_ms=ms, p90_ms=ms, p99_ms=ms, outcomes=outcomes)


def fleet(*moments: Moment, **outcomes: int) -> Fleet:
    hops = [
        HopStats(hop="prefill", allotted_ms=60.0, **STATS),
        HopStats(hop="cache", allotted_ms=None, **STATS),
    ]
    return Fleet(
        step_s=60, num=sum(outcomes.values()), outcomes=outcomes, ttft=TTFT, hops=hops, moments=list(moments)
    )


@given(st.floats(1e-5, 1e9))
def test_axis_ends_on_a_round_value_that_holds_all(value: float) -> None:
    top = charts.nice(value)
    assert value * (1 - 1e-9) <= top <= value * 2.0001


@pytest.mark.parametrize("value", [1, 1.5, 2, 3, 4, 5, 6, 8, 150, 0.3, 6000])
def test_axis_has_round_steps(value: float) -> None:
    shown = charts.lines(fleet(moment(0, value / 3.2)))
    steps = [tick for tick, _ in shown.axis.ticks]
    assert steps[0] == 0
    assert all(float(f"{tick:.3g}") == pytest.approx(tick) for tick in steps)


def test_stacks_are_shares_of_the_step_from_the_bottom_up() -> None:
    shown = charts.stacks(fleet(moment(0), moment(1, ok=6, prefill=3, failed=1), prefill=3, failed=1, ok=6))
    assert shown.axis.top == 40
    assert shown.columns[0].pieces == []
    assert [name for name, _, _ in shown.columns[1].pieces] == ["prefill", "failed"]
    assert [top for _, top, _ in shown.columns[1].pieces] == pytest.approx([25, 0])
    assert [height for _, _, height in shown.columns[1].pieces] == pytest.approx([75, 25])
    assert (shown.columns[1].num, shown.columns[1].num_missed, shown.num_missed) == (10, 4, 4)


def test_lines_break_where_nothing_was_measured() -> None:
    shown = charts.lines(fleet(moment(0, 50), moment(1, 100), moment(2), moment(3, 75)))
    [_, [_, p90], _] = shown.series
    assert [len(points.split()) for points in p90] == [2, 2]
    assert shown.axis.top == 150
    assert shown.budget == pytest.approx(100 / 3)


def test_lines_clip_one_bad_minute_so_that_the_others_can_be_read() -> None:
    bad = Moment(at_s=60, p50_ms=50, p90_ms=90, p99_ms=50_000, outcomes={})
    shown = charts.lines(fleet(moment(0, 50), bad))
    assert shown.axis.top == 400
    assert shown.series[0][1][0].split()[1].endswith(",0.00")


def test_hops_stand_in_the_order_of_a_request_on_one_scale() -> None:
    rows = charts.hop_rows(fleet(moment(0)))
    assert [row.stats.hop for row in rows] == ["cache", "prefill"]
    assert rows[1].p99 == pytest.approx(130 / 150 * 100)
    assert rows[0].allotted is None
    assert rows[1].allotted == pytest.approx(40)

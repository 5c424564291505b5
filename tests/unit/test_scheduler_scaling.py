"""How many workers a pool should have, and how it lets go of them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sub100_scheduler.pools import PoolKey, PoolLoad
from sub100_scheduler.scaling import Scaler, Targets, demand

TARGETS = Targets(min_replicas=1, max_replicas=20, down_after_s=300.0)
PREFILL: PoolKey = ("prefill", "default")


def load(num_ready: int, **signals: Any) -> PoolLoad:
    return PoolLoad(num_by_state={"ready": num_ready} if num_ready else {"starting": 1}, **signals)


def test_work_asks_for_workers_that_are_busy_for_its_share_of_the_time() -> None:
    """3.5 workers' worth of prefills at 70 % each."""
    assert demand(load(2, work=3.5), TARGETS)["work"] == 5
    assert demand(load(9, work=3.5), TARGETS)["work"] == 5


def test_occupancy_and_kv_ask_for_what_brings_them_to_their_targets() -> None:
    full = load(4, num_requests=400, num_places=200, kv_usage=0.97)
    assert demand(full, TARGETS)["occupancy"] == 10  # twice full, to be at 80 %
    assert demand(full, TARGETS)["kv"] == 5


def test_signal_near_its_target_changes_nothing() -> None:
    for work in (0.7 * 4 * 0.91, 0.7 * 4, 0.7 * 4 * 1.09):
        assert demand(load(4, work=work), TARGETS)["work"] == 4
    assert demand(load(4, work=0.7 * 4 * 1.11), TARGETS)["work"] == 5


def test_queue_asks_for_twice_as_many_at_most() -> None:
    assert demand(load(3, wait_ms=30.0), TARGETS)["wait"] == 5
    assert demand(load(3, wait_ms=60_000.0), TARGETS)["wait"] == 6


def test_demand_is_unknown_without_a_ready_worker() -> None:
    assert demand(load(0, work=50.0), TARGETS) == {}


@given(
    num_ready=st.integers(1, 100),
    work=st.floats(0, 1e4),
    wait_ms=st.floats(0, 1e6),
    num_requests=st.integers(0, 100_000),
    kv_usage=st.floats(0, 1),
    more=st.floats(0, 1e3),
)
def test_demand_is_bounded_and_rises_with_every_signal(
    num_ready: int, work: float, wait_ms: float, num_requests: int, kv_usage: float, more: float
) -> None:
    before = load(
        num_ready, work=work, wait_ms=wait_ms, num_requests=num_requests, num_places=100, kv_usage=kv_usage
    )
    after = load(
        num_ready,
        work=work + more,
        wait_ms=wait_ms + more,
        num_requests=num_requests + int(more),
        num_places=100,
        kv_usage=min(1.0, kv_usage + more),
    )
    asked, then = demand(before, TARGETS), demand(after, TARGETS)
    for signal in asked:
        assert 1 <= asked[signal] <= 20
        assert then[signal] >= asked[signal]


class Watch:
    """A scaler that is told a load each second."""

    def __init__(self, targets: Targets = TARGETS) -> None:
        self._scaler = Scaler(targets)
        self._now_ms = 1e6

    def after(self, seconds: int, state: PoolLoad | None) -> int:
        for _ in range(seconds):
            self._now_ms += 1_000
            wanted = self._scaler.update({} if state is None else {PREFILL: state}, self._now_ms)
        return wanted[PREFILL]


def test_scaler_goes_up_at_once_and_down_after_a_while_only() -> None:
    watch = Watch()
    assert watch.after(1, load(2, work=1.4)) == 2
    assert watch.after(1, load(2, work=5.6)) == 8
    assert watch.after(299, load(8, work=1.4)) == 8
    assert watch.after(3, load(8, work=1.4)) == 2


def test_scaler_does_not_follow_a_load_that_comes_and_goes() -> None:
    watch = Watch()
    watch.after(1, load(2, work=5.6))
    seen = set()
    for _ in range(20):
        seen.add(watch.after(30, load(8, work=0.1)))
        seen.add(watch.after(30, load(8, work=5.6)))
    assert seen == {8}


def test_scaler_starts_from_the_fleet_that_it_finds() -> None:
    """A scheduler that has just started knows no work yet; it must not shrink a busy fleet for that."""
    watch = Watch()
    assert watch.after(1, load(6)) == 6
    assert watch.after(302, load(6)) == 1


def test_scaler_keeps_the_size_of_a_pool_that_lost_its_workers() -> None:
    watch = Watch()
    watch.after(1, load(5, work=3.5))
    assert watch.after(3_600, None) == 5
    assert watch.after(60, load(0)) == 5


def test_scaler_has_workers_that_start_counted_once() -> None:
    """Demand is work over the target, whatever is on its way: no runaway while replicas load a model."""
    watch = Watch()
    state = load(2, work=2.8)
    state.num_by_state["starting"] = 2
    assert watch.after(60, state) == 4


@pytest.mark.parametrize(("work", "expected"), [(0.0, 3), (100.0, 5)])
def test_scaler_keeps_to_its_bounds(work: float, expected: int) -> None:
    targets = Targets(min_replicas=3, max_replicas=5, down_after_s=0.5)
    assert Watch(targets).after(3, load(4, work=work)) == expected

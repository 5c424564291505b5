"""When a region that has not heard of the others stops to serve."""

from hypothesis import given
from hypothesis import strategies as st

from sub100_cache.freshness import Freshness
from sub100_cache.store.log_place import Place


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1e6

    def __call__(self) -> float:
        return self.now_ms


def test_region_alone_is_never_cut_off() -> None:
    clock = Clock()
    freshness = Freshness(clock, None)
    clock.now_ms += 1e12

    assert not freshness.is_cut_off
    assert freshness.place == Place()


def test_region_is_cut_off_until_it_has_seen_the_logs_end() -> None:
    clock = Clock()
    freshness = Freshness(clock, 10)
    assert freshness.is_cut_off

    freshness.confirm(Place(3, 7), clock())

    assert not freshness.is_cut_off
    assert freshness.place == Place(3, 7)


@given(st.floats(0, 1e5), st.floats(0, 1e5))
def test_region_is_cut_off_when_its_last_news_is_older_than_the_limit(
    asked_ms: float, passed_ms: float
) -> None:
    """What counts is when the end was asked for, not when the answer came."""
    clock = Clock()
    freshness = Freshness(clock, 10)
    clock.now_ms += asked_ms
    freshness.confirm(Place(1, 1), clock() - asked_ms)
    clock.now_ms += passed_ms

    age_ms = clock() - 1e6
    assert freshness.is_cut_off == (age_ms > 10_000)


def test_region_that_lost_its_place_is_cut_off_until_it_finds_another() -> None:
    clock = Clock()
    freshness = Freshness(clock, 10)
    freshness.confirm(Place(3, 5000), clock())

    freshness.lose()
    assert freshness.is_cut_off
    assert freshness.place == Place()

    freshness.confirm(Place(4, 2), clock())
    assert not freshness.is_cut_off

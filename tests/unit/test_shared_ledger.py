import pytest
from hypothesis import given
from hypothesis import strategies as st

from sub100_shared import semconv
from sub100_shared.ledger import DEFAULT_SPLIT, Ledger, server_timing, split_of


class Now:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.ms = 1_000.0

    def __call__(self) -> float:
        return self.ms


def test_critical_path_sums_to_the_ttft_when_hops_follow_one_another() -> None:
    now = Now()
    ledger = Ledger(now)
    now.ms += 2
    cache = ledger.open(semconv.HOP_CACHE)
    now.ms += 3
    ledger.close(cache, own_ms=1.0)
    schedule = ledger.open(semconv.HOP_SCHEDULE)
    now.ms += 4
    ledger.close(schedule)
    now.ms += 1
    prefill = ledger.open(semconv.HOP_PREFILL)
    now.ms += 30
    ledger.close(prefill, own_ms=28.0)
    now.ms += 0.5
    ledger.first_content_byte()
    path = [(s.name, s.duration_ms) for s in ledger.critical_path()]
    assert path == [
        ("ingress", 2.0),
        ("cache", 3.0),
        ("schedule", 4.0),
        ("ingress", 1.0),
        ("prefill", 30.0),
        ("ingress", 0.5),
    ]
    assert ledger.ttft_ms == 40.5
    assert prefill.bus_ms == 2.0
    assert ledger.blame() == ""


def test_critical_path_hides_the_hop_that_ran_beside_a_longer_one() -> None:
    now = Now()
    ledger = Ledger(now)
    cache = ledger.open(semconv.HOP_CACHE)
    schedule = ledger.open(semconv.HOP_SCHEDULE)
    now.ms += 3
    ledger.close(cache)
    now.ms += 2
    ledger.close(schedule)
    ledger.first_content_byte()
    assert [(s.name, s.duration_ms) for s in ledger.critical_path()] == [("schedule", 5.0)]


def test_blame_names_the_critical_hop_with_the_largest_overrun() -> None:
    now = Now()
    ledger = Ledger(now, total_ms=100.0)
    schedule = ledger.open(semconv.HOP_SCHEDULE)
    now.ms += 50
    ledger.close(schedule)
    prefill = ledger.open(semconv.HOP_PREFILL)
    now.ms += 70
    ledger.close(prefill)
    ledger.first_content_byte()
    assert ledger.blame() == "schedule"


def test_first_content_byte_counts_once_and_late_hops_are_not_on_the_path() -> None:
    now = Now()
    ledger = Ledger(now)
    now.ms += 10
    ledger.first_content_byte()
    decode = ledger.open(semconv.HOP_DECODE)
    now.ms += 500
    ledger.close(decode)
    ledger.first_content_byte()
    assert ledger.ttft_ms == 10.0
    assert [s.name for s in ledger.critical_path()] == ["ingress"]


def test_remaining_falls_with_time_and_network_and_may_be_negative() -> None:
    now = Now()
    ledger = Ledger(now, total_ms=100.0, network_ms=20.0)
    now.ms += 30
    assert ledger.remaining_ms() == 50.0
    hop = ledger.open(semconv.HOP_PREFILL)
    assert ledger.budget_for(hop).remaining_ms == pytest.approx(49.8)
    now.ms += 100
    assert ledger.remaining_ms() == -50.0


def test_server_timing_lists_each_hop_once_with_the_total() -> None:
    now = Now()
    ledger = Ledger(now)
    now.ms += 1
    hop = ledger.open(semconv.HOP_PREFILL)
    now.ms += 8
    ledger.close(hop)
    now.ms += 1
    ledger.first_content_byte()
    assert server_timing(ledger) == "ingress;dur=2.00, prefill;dur=8.00, ttft;dur=10.00"


@given(
    st.lists(
        st.tuples(st.floats(0, 50), st.floats(0, 50), st.one_of(st.none(), st.floats(0, 100))), max_size=8
    ),
    st.floats(0, 120),
)
def test_critical_path_sums_to_the_ttft_and_is_never_negative_for_any_overlap(
    intervals: list[tuple[float, float, float | None]], ttft: float
) -> None:
    now = Now()
    start = now.ms
    ledger = Ledger(now)
    for begin, length, own in sorted(intervals, key=lambda i: i[0]):
        now.ms = start + begin
        hop = ledger.open(semconv.HOP_CACHE)
        now.ms = start + begin + length
        ledger.close(hop, own)
    now.ms = start + ttft
    ledger.first_content_byte()
    path = ledger.critical_path()
    assert sum(s.duration_ms for s in path) == pytest.approx(ttft, abs=1e-6)
    assert all(s.duration_ms >= 0 for s in path)
    assert all(hop.bus_ms >= 0 for hop in ledger.hops)


def test_split_changes_the_shares_that_are_named() -> None:
    split = split_of("prefill=0.5, cache = 0.2")
    assert (split["prefill"], split["cache"], split["schedule"]) == (0.5, 0.2, 0.05)
    assert split_of("") == DEFAULT_SPLIT
    assert sum(DEFAULT_SPLIT.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prefil=0.5", "no hop 'prefil'"),
        ("prefill", "'prefill' is not hop=share"),
        ("prefill=x", "'prefill=x' is not hop=share"),
        ("prefill=nan", "from 0 to 1"),
        ("prefill=-0.1", "from 0 to 1"),
        ("prefill=0.7", "sum to 1.1, more than the whole budget"),
    ],
)
def test_split_refuses_what_is_none_and_says_why(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split_of(text)

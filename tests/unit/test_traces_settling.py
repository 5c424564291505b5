"""From spans to paths and rollups, whatever the order in which batches come."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit import traces_ledger as ledger

from sub100_shared import semconv
from sub100_traces.spans import Span
from sub100_traces.store import Filter, Fleet, FleetFilter, Limits, Store
from sub100_traces.store.facets import MAX_VALUES, OTHER
from sub100_traces.store.settling import SETTLE_S
from sub100_traces.summary import MAX_LABEL_CHARS

NOW_S = 1_760_000_430.0


class Clock:
    def __init__(self) -> None:
        self.now_s = NOW_S

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> Iterator[Store]:
    store = Store("", Limits(), clock)
    yield store
    store.close()


def settle(store: Store, clock: Clock) -> None:
    clock.now_s += SETTLE_S
    while store.keep_house().is_more:
        pass


def fleet(store: Store, clock: Clock, **wanted: str) -> Fleet:
    return store.fleet(FleetFilter(**wanted), clock())


def spent(store: Store, request_id: str = "req-1") -> dict[str, float]:
    found = store.request(request_id)
    assert found is not None
    return dict(found.hops)


def test_settling_takes_the_path_from_the_critical_hops_and_gives_ingress_the_rest(
    store: Store, clock: Clock
) -> None:
    store.write([*ledger.hops(1), ledger.root(1)])
    assert spent(store) == {}
    settle(store, clock)
    assert spent(store) == {"network": 30, "ingress": 5, "schedule": 4, "prefill": 72}
    found = store.request("req-1")
    assert found is not None
    assert found.spent_ms == sum(dict(found.hops).values()) == 111
    assert (found.worker, found.is_over_budget) == ("prefill-2", True)


@pytest.mark.parametrize("order", ["root first", "hops first"])
def test_settling_finds_hops_of_other_batches(store: Store, clock: Clock, order: str) -> None:
    batches: list[list[Span]] = [[ledger.root(1)], ledger.hops(1)]
    for batch in batches if order == "root first" else reversed(batches):
        store.write(batch)
    assert [found.request_id for found in store.page(Filter(worker="decode-1"), 10).requests] == ["req-1"]
    settle(store, clock)
    assert spent(store)["prefill"] == 72
    assert store.facets()["worker"] == ["decode-1", "prefill-2"]


def test_settling_counts_a_request_once_when_its_spans_come_again(store: Store, clock: Clock) -> None:
    for _ in range(2):
        store.write([*ledger.hops(1), ledger.root(1)])
        settle(store, clock)
    assert fleet(store, clock).num == 1


def test_settling_is_done_after_a_restart_when_the_process_stopped_before(
    tmp_path_factory: pytest.TempPathFactory, clock: Clock
) -> None:
    path = str(tmp_path_factory.mktemp("traces") / "traces.db")
    first = Store(path, Limits(), clock)
    first.write([*ledger.hops(1), ledger.root(1)])
    first.close()
    second = Store(path, Limits(), clock)
    settle(second, clock)
    assert spent(second)["prefill"] == 72
    second.close()


def test_fleet_has_each_hop_against_its_allotment(store: Store, clock: Clock) -> None:
    for number in range(1, 11):
        store.write([*ledger.hops(number), ledger.root(number)])
    store.write([ledger.root(11, **{semconv.TTFT_MS: 20.0, semconv.BLAME: "", semconv.NETWORK_MS: 0.0})])
    settle(store, clock)
    found = fleet(store, clock)
    hops = {stats.hop: stats for stats in found.hops}
    assert found.outcomes == {"prefill": 10, "ok": 1}
    assert set(hops) == {"network", "ingress", "schedule", "prefill"}
    assert hops["prefill"].p50_ms == pytest.approx(72, rel=0.03)
    assert hops["prefill"].allotted_ms == 60
    assert (hops["prefill"].over_share, hops["schedule"].over_share) == (1, 0)
    assert hops["schedule"].bus_ms == 0.5
    assert found.ttft is not None
    assert found.ttft.p50_ms == pytest.approx(111, rel=0.03)
    moment = next(moment for moment in found.moments if moment.outcomes)
    assert moment.at_s == NOW_S // 60 * 60
    assert moment.p99_ms == pytest.approx(111, rel=0.03)


def test_fleet_keeps_to_the_range_and_the_labels(store: Store, clock: Clock) -> None:
    store.write([*ledger.hops(1), ledger.root(1)])
    store.write([ledger.root(2, **{semconv.REGION: "us"})])
    settle(store, clock)
    clock.now_s += 2 * 3600
    store.write([*ledger.hops(3), ledger.root(3, **{semconv.CODE: "worker_lost"})])
    settle(store, clock)
    assert fleet(store, clock).outcomes == {"failed": 1}
    assert fleet(store, clock, range="3h").num == 3
    assert fleet(store, clock, range="24h", region="us").num == 1
    assert fleet(store, clock, range="7d", worker="prefill-2").num == 2
    assert fleet(store, clock, range="7d", tier="warm").num == 0
    lengths = {
        name: len(fleet(store, clock, range=name).moments) for name in ("15m", "1h", "3h", "24h", "7d")
    }
    assert lengths == {"15m": 15, "1h": 60, "3h": 36, "24h": 48, "7d": 56}


def test_fleet_believes_no_senders_clock(store: Store, clock: Clock) -> None:
    """O08: a request dated years ahead still counts in the minute in which it came."""
    ahead = ledger.root(1)
    store.write(
        [Span(trace_id="f" * 32, span_id="1" * 16, start_ns=2**62, end_ns=1, attributes=ahead.attributes)]
    )
    settle(store, clock)
    assert fleet(store, clock, range="15m").num == 1
    found = store.request("req-1")
    assert found is not None
    assert found.duration_ms == 0


def test_settling_ignores_absurd_durations(store: Store, clock: Clock) -> None:
    hop: dict[str, Any] = {semconv.HOP: "decode", semconv.SPENT_MS: 1e300, semconv.CRITICAL: True}
    absurd: dict[str, Any] = {semconv.TTFT_MS: -5, semconv.NETWORK_MS: float("inf")}
    store.write(
        [
            ledger.hop(1, "prefill", 1, -3000, 60),
            ledger.span(1, 5, 2, 3, **hop),
            ledger.root(1, **absurd),
        ]
    )
    settle(store, clock)
    assert spent(store) == {}
    assert fleet(store, clock).ttft is None


def test_housekeeping_drops_what_is_too_old(store: Store, clock: Clock) -> None:
    store.write([*ledger.hops(1), ledger.root(1)])
    settle(store, clock)
    clock.now_s += Limits().max_age_s
    store.write([ledger.root(2)])
    settle(store, clock)
    assert [found.request_id for found in store.page(Filter(), 10).requests] == ["req-2"]
    assert store.page(Filter(worker="prefill-2"), 10).requests == []
    assert fleet(store, clock, range="7d").num == 1
    assert "worker" not in store.facets()


def test_housekeeping_keeps_the_file_within_its_size(clock: Clock) -> None:
    store = Store("", Limits(max_bytes=2 * 2**20), clock)
    text = "x" * 1000
    for first in range(1, 10_001, 500):
        store.write([ledger.root(number, note=text) for number in range(first, first + 500)])
        settle(store, clock)
    assert 400 < store.num_traces() < 2500
    assert Path(store.path).stat().st_size < 6 * 2**20
    newest = store.page(Filter(), 1).requests[0]
    assert newest.request_id == "req-10000"
    store.close()


def test_made_up_names_fill_neither_the_filters_nor_the_rollups(store: Store, clock: Clock) -> None:
    store.write([*ledger.hops(1), ledger.root(1)])
    for number in range(2, 200):
        made_up: dict[str, Any] = {
            semconv.REGION: f"region-{number}",
            semconv.TENANT: "x" * 5000 + str(number),
        }
        store.write([ledger.root(number, **made_up)])
    settle(store, clock)
    facets = store.facets()
    assert len(facets["region"]) == MAX_VALUES["region"]
    assert "eu" in facets["region"]
    assert facets["tenant"] == ["acme", "x" * MAX_LABEL_CHARS]
    assert fleet(store, clock, region=OTHER).num == 199 - MAX_VALUES["region"]
    assert fleet(store, clock, region="eu").num == 1
    assert [found.request_id for found in store.page(Filter(region="region-199"), 10).requests] == ["req-199"]


def test_housekeeping_gives_up_rollups_when_they_alone_are_too_large(clock: Clock) -> None:
    store = Store("", Limits(max_bytes=400_000, max_traces=5), clock)
    for minute in range(400):
        clock.now_s = NOW_S + 60 * minute
        worker = f"prefill-{minute % 100}"
        prefill = ledger.hop(minute + 1, "prefill", 6, 72, 60, worker=worker)
        store.write([prefill, ledger.root(minute + 1)])
        settle(store, clock)
    assert store.page(Filter(), 1).requests[0].request_id == "req-400"
    assert 30 < fleet(store, clock, range="3h").num < 180
    store.close()

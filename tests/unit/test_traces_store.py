"""What is kept, what is dropped, and what a file must be."""

import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

from sub100_shared import semconv
from sub100_traces.spans import Event, Span
from sub100_traces.store import Filter, Limits, Store, StoreError
from sub100_traces.store.store import MAX_SPANS_PER_TRACE
from sub100_traces.summary import RequestSummary


def span(trace: int, number: int = 1, **changes: Any) -> Span:
    values: dict[str, Any] = {"start_ns": 1_000_000_000, "end_ns": 1_250_000_000, "name": "x"}
    return Span(trace_id=f"{trace:032x}", span_id=f"{number:016x}", **(values | changes))


def tidy(store: Store) -> None:
    """Housekeeping until nothing is left to do."""
    while store.keep_house().is_more:
        pass


def listed(store: Store, limit: int = 100) -> list[RequestSummary]:
    return store.page(Filter(), limit).requests


def request(trace: int, request_id: str) -> Span:
    return span(
        trace,
        name="chat",
        attributes={
            semconv.REQUEST_ID: request_id,
            semconv.TENANT: "acme",
            semconv.MODEL: "smol",
            semconv.TIER: "warm",
            semconv.HTTP_STATUS: 200,
            semconv.TTFT_MS: 130.5,
            semconv.BUDGET_TOTAL_MS: 100,
            semconv.BLAME: "prefill",
        },
    )


def test_store_returns_a_span_as_it_was_written() -> None:
    store = Store("", Limits())
    written = span(
        1,
        parent_id="f" * 16,
        service="sub100-decode",
        instance="decode-1",
        is_error=True,
        status="worker_lost",
        attributes={"a": 1, "b": [1.5, "x", None, {"c": True}]},
        events=[Event(name="exception", time_ns=7, attributes={"k": "v"})],
    )
    assert store.write([written]) == 1
    assert store.spans(written.trace_id) == [written]
    store.close()


def test_store_lists_requests_latest_first_and_finds_one_by_id() -> None:
    store = Store("", Limits())
    store.write([request(1, "req-1"), span(1, 2), request(2, "req-2")])
    assert [found.request_id for found in listed(store)] == ["req-2", "req-1"]
    assert [found.request_id for found in listed(store, 1)] == ["req-2"]
    found = store.request("req-1")
    assert found is not None
    assert (found.trace_id, found.duration_ms, found.tenant, found.model) == (
        f"{1:032x}",
        250,
        "acme",
        "smol",
    )
    assert (found.tier, found.status, found.ttft_ms, found.budget_ms) == ("warm", 200, 130.5, 100)
    assert (found.blame, found.is_over_budget) == ("prefill", True)
    assert store.request("req-3") is None
    store.close()


def test_store_does_not_list_a_hop_that_names_its_request() -> None:
    store = Store("", Limits())
    store.write([span(1, attributes={semconv.REQUEST_ID: "req-1", semconv.HOP: "prefill"})])
    assert listed(store) == []
    store.close()


def test_store_keeps_the_newest_traces_when_the_bound_is_reached() -> None:
    store = Store("", Limits(max_traces=3))
    for trace in range(1, 11):
        store.write([request(trace, f"req-{trace}"), span(trace, 2)])
        tidy(store)
        assert store.num_traces() == min(trace, 3)
    assert [found.request_id for found in listed(store)] == ["req-10", "req-9", "req-8"]
    assert store.spans(f"{7:032x}") == []
    assert store.request("req-7") is None
    assert len(store.spans(f"{8:032x}")) == 2
    store.close()


def test_store_keeps_the_bound_when_one_batch_exceeds_it() -> None:
    store = Store("", Limits(max_traces=3))
    store.write([span(trace) for trace in range(1, 101)])
    tidy(store)
    assert store.num_traces() == 3
    assert len(store.spans(f"{100:032x}")) == 1
    store.close()


def test_store_adds_late_spans_to_their_trace_without_making_room_for_it() -> None:
    store = Store("", Limits(max_traces=2))
    store.write([span(1), span(2)])
    store.write([span(1, 2)])
    assert store.num_traces() == 2
    assert len(store.spans(f"{1:032x}")) == 2
    store.close()


def test_store_replaces_a_request_that_is_exported_twice() -> None:
    store = Store("", Limits())
    store.write([request(1, "req-1")])
    store.write([request(1, "req-1")])
    assert len(listed(store)) == 1
    assert len(store.spans(f"{1:032x}")) == 1
    store.close()


def test_store_drops_the_excess_of_an_endless_trace() -> None:
    store = Store("", Limits())
    assert (
        store.write([span(1, number) for number in range(1, MAX_SPANS_PER_TRACE)]) == MAX_SPANS_PER_TRACE - 1
    )
    assert store.write([span(1, 100_000), span(1, 100_001), span(2)]) == 2
    assert len(store.spans(f"{1:032x}")) == MAX_SPANS_PER_TRACE
    store.close()


def test_store_is_private_and_survives_reopening(tmp_path: Path) -> None:
    path = tmp_path / "traces.db"
    store = Store(str(path), Limits())
    store.write([request(1, "req-1")])
    assert [stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()] == [0o600] * 3
    store.close()
    again = Store(str(path), Limits())
    assert again.request("req-1") is not None
    again.close()


def test_store_names_the_file_when_it_is_not_a_database(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, and long enough to be looked at as one " * 40)
    with pytest.raises(StoreError, match=r"notes\.txt"):
        Store(str(path), Limits())


def test_store_refuses_a_file_of_another_version(tmp_path: Path) -> None:
    path = tmp_path / "traces.db"
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StoreError, match="schema 99"):
        Store(str(path), Limits())


def test_store_close_is_idempotent_and_removes_the_temporary_file() -> None:
    store = Store("", Limits())
    path = Path(store.path)
    assert path.exists()
    store.close()
    store.close()
    assert not path.parent.exists()

"""Filters: from a URL to requests and back."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit import traces_ledger as ledger

from sub100_shared import semconv
from sub100_traces.store import Filter, InvalidFilter, Limits, Store
from sub100_traces.store.filters import parse


def failed(status: int) -> dict[str, Any]:
    return {semconv.HTTP_STATUS: status, semconv.TTFT_MS: None}


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    store = Store("", Limits())
    store.write([*ledger.hops(1), ledger.root(1)])
    store.write([ledger.root(2, **{semconv.TENANT: "beta", semconv.REGION: "us", semconv.TIER: "warm"})])
    in_time = {semconv.TTFT_MS: 40.0, semconv.BLAME: ""}
    store.write([ledger.root(3, **in_time), ledger.root(0xABC, **in_time)])
    failed = {semconv.HTTP_STATUS: 503, semconv.CODE: "no_capacity", semconv.TTFT_MS: None}
    store.write(
        [ledger.root(5, **failed), ledger.root(6, **{semconv.HTTP_STATUS: 429, semconv.TTFT_MS: None})]
    )
    yield store
    store.close()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [6, 5, 0xABC, 3, 2, 1]),
        ("tenant=beta", [2]),
        ("region=eu", [6, 5, 0xABC, 3, 1]),
        ("tier=warm", [2]),
        ("blame=prefill&late=1", [2, 1]),
        ("late=1&region=eu", [1]),
        ("worker=prefill-2", [1]),
        ("worker=nobody", []),
        ("status=503", [5]),
        ("status=4xx", [6]),
        ("status=2xx&late=0", [0xABC, 3, 2, 1]),
        ("status=failed", [5]),
        ("q=REQ", []),
        ("q=eq-2", [0xABC, 2]),
        (f"q={1:032x}", [1]),
        ("q=" + "0" * 20, [6, 5, 0xABC, 3, 2, 1]),
        (f"q={0xABC:032X}", [0xABC]),
        ("q=%25' OR 1=1 --", []),
    ],
)
def test_filter_finds_the_requests_it_names(store: Store, query: str, expected: list[int]) -> None:
    found = store.page(parse(dict(parse_qsl(query))), 100).requests
    assert [request.request_id for request in found] == [f"req-{number}" for number in expected]


def test_page_goes_on_from_its_cursor_without_gap_or_repeat(store: Store) -> None:
    seen: list[str] = []
    cursor = 0
    for _ in range(3):
        page = store.page(Filter(before=cursor), 2)
        seen += [request.request_id for request in page.requests]
        cursor = page.before
    assert cursor == 0
    assert seen == [f"req-{number}" for number in (6, 5, 0xABC, 3, 2, 1)]


@pytest.mark.parametrize(
    "query",
    ["status=200x", "status=9xx", "status=٢xx", "late=yes", "before=-1", "before=1e9", "before=" + "9" * 19],
)
def test_parse_names_the_parameter_that_is_wrong(query: str) -> None:
    with pytest.raises(InvalidFilter, match=query.partition("=")[0]):
        parse(dict(parse_qsl(query)))


@given(
    st.builds(
        Filter,
        tenant=st.text(max_size=20).map(str.strip),
        worker=st.text(max_size=20).map(str.strip),
        q=st.text(max_size=20).map(str.strip),
        status=st.sampled_from(["", "200", "5xx", "failed"]),
        late=st.booleans(),
        before=st.integers(0, 10**17),
    )
)
def test_query_of_a_filter_reads_back_as_the_filter(wanted: Filter) -> None:
    assert parse(dict(parse_qsl(wanted.query()))) == wanted


@given(st.text(max_size=300), st.text(max_size=10))
def test_any_text_is_a_search_and_nothing_else(store: Store, q: str, tenant: str) -> None:
    store.page(parse({"q": q, "tenant": tenant}), 5)

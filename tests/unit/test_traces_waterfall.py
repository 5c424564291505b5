"""Spans -> tree and ruler."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sub100_shared import semconv
from sub100_traces import waterfall
from sub100_traces.spans import Span

BASE_NS = 1_700_000_000_000_000_000


def span(span_id: str, parent_id: str, start_ms: float, end_ms: float, **attributes: Any) -> Span:
    return Span(
        trace_id="a" * 32,
        span_id=span_id,
        parent_id=parent_id,
        name=span_id,
        start_ns=BASE_NS + int(start_ms * 1e6),
        end_ns=BASE_NS + int(end_ms * 1e6),
        attributes=attributes,
    )


def root(ttft_ms: float, budget_ms: float, end_ms: float, parent_id: str = "", span_id: str = "root") -> Span:
    return span(
        span_id,
        parent_id,
        0,
        end_ms,
        **{
            semconv.REQUEST_ID: f"req-{span_id}",
            semconv.TTFT_MS: ttft_ms,
            semconv.BUDGET_TOTAL_MS: budget_ms,
        },
    )


def outline(built: waterfall.Waterfall) -> list[tuple[str, int]]:
    return [(row.span.span_id, row.depth) for row in built.rows]


def test_build_orders_depth_first_and_siblings_by_start() -> None:
    spans = [
        span("engine", "worker", 12, 30),
        span("prefill", "root", 10, 40),
        span("cache", "root", 1, 3),
        root(45, 100, 500),
        span("worker", "prefill", 11, 39),
    ]
    built = waterfall.build(spans)
    assert outline(built) == [("root", 0), ("cache", 1), ("prefill", 1), ("worker", 2), ("engine", 3)]
    assert [row.offset_ms for row in built.rows] == [0, 1, 10, 11, 12]
    assert [row.duration_ms for row in built.rows] == [500, 2, 30, 28, 18]
    assert built.request is not None
    assert built.request.request_id == "req-root"


def test_build_shows_spans_after_the_request_when_their_parent_is_missing() -> None:
    built = waterfall.build(
        [span("lost", "gone", -5, 3), root(45, 100, 50), span("lost-child", "lost", 0, 2)]
    )
    assert outline(built) == [("root", 0), ("lost", 0), ("lost-child", 1)]
    assert [row.is_orphan for row in built.rows] == [False, True, False]


def test_build_does_not_call_a_request_orphan_when_the_client_sent_its_own_trace() -> None:
    built = waterfall.build([root(45, 100, 50, parent_id="clients-span")])
    assert built.rows[0].is_orphan is False


def test_build_shows_every_span_once_when_parents_form_a_circle() -> None:
    built = waterfall.build([span("a", "b", 0, 1), span("b", "a", 1, 2), span("self", "self", 3, 4)])
    assert sorted(row.span.span_id for row in built.rows) == ["a", "b", "self"]


def test_build_keeps_only_the_requests_own_spans_when_a_trace_holds_two() -> None:
    spans = [
        root(45, 100, 50, parent_id="client", span_id="one"),
        span("one-cache", "one", 1, 2),
        root(70, 100, 80, parent_id="client", span_id="two"),
        span("two-cache", "two", 1, 2),
    ]
    built = waterfall.build(spans, "two")
    assert outline(built) == [("two", 0), ("two-cache", 1)]
    assert built.request is not None
    assert built.request.ttft_ms == 70
    assert len(waterfall.build(spans).rows) == 4


def test_build_never_gives_negative_widths_when_clocks_are_skewed() -> None:
    built = waterfall.build(
        [root(45, 100, 500), span("early", "root", -3000, -2990), span("back", "root", 5, 1)]
    )
    early = next(row for row in built.rows if row.span.span_id == "early")
    back = next(row for row in built.rows if row.span.span_id == "back")
    assert (early.offset_ms, early.duration_ms) == (-3000, 10)
    assert built.ruler.bar(early.offset_ms, early.duration_ms) == (0, 0)
    assert back.duration_ms == 0
    assert built.ruler.first_ms == 100


def test_build_reads_the_hops_account_and_the_critical_flag() -> None:
    hop = {
        semconv.HOP: "prefill",
        semconv.ALLOTTED_MS: 40.0,
        semconv.SPENT_MS: 62.5,
        semconv.OVERRUN_MS: 22.5,
        semconv.CRITICAL: True,
    }
    row = waterfall.build([root(90, 100, 200), span("prefill", "root", 10, 72.5, **hop)]).rows[1]
    assert row.account is not None
    account = row.account
    assert (row.hop, account.allotted_ms, account.spent_ms, account.overrun_ms) == ("prefill", 40, 62.5, 22.5)
    assert row.is_critical is True


def test_build_ignores_attributes_of_the_wrong_type() -> None:
    odd = {
        semconv.HOP: ["x"],
        semconv.ALLOTTED_MS: "fast",
        semconv.SPENT_MS: float("nan"),
        semconv.CRITICAL: "yes",
    }
    row = waterfall.build([root(90, 100, 200), span("odd", "root", 1, 2, **odd)]).rows[1]
    assert (row.hop, row.account, row.is_critical) == ("", None, False)


def test_ruler_spans_the_budget_and_compresses_the_rest_when_the_answer_goes_on() -> None:
    ruler = waterfall.build([root(45, 100, 2100)]).ruler
    assert (ruler.first_ms, ruler.total_ms, ruler.split) == (100, 2100, 72)
    assert [ruler.position(ms) for ms in (-1, 0, 50, 100, 1100, 2100, 9999)] == [0, 0, 36, 72, 86, 100, 100]
    assert ruler.ticks() == [0, 20, 40, 60, 80, 100]


def test_ruler_reaches_the_first_token_when_it_is_late() -> None:
    assert waterfall.build([root(180, 100, 2100)]).ruler.first_ms == 180


def test_ruler_has_the_whole_width_when_nothing_follows_the_budget() -> None:
    ruler = waterfall.build([root(45, 100, 60)]).ruler
    assert (ruler.split, ruler.position(100)) == (100, 100)


def test_ruler_measures_the_trace_itself_when_no_request_is_known() -> None:
    ruler = waterfall.build([span("x", "", 0, 7)]).ruler
    assert (ruler.first_ms, ruler.total_ms) == (7, 7)


IDS = st.sampled_from(["a", "b", "c", "d", "e", "f"])
SPANS = st.lists(
    st.tuples(IDS, st.one_of(st.just(""), IDS, st.just("gone")), st.floats(-1e4, 1e4), st.floats(-1e4, 1e4)),
    min_size=1,
    unique_by=lambda item: item[0],
)


@given(SPANS, st.booleans(), st.floats(0, 1e300), st.floats(0, 1e300))
def test_build_holds_its_invariants_for_any_spans(
    shape: list[tuple[str, str, float, float]], has_request: bool, ttft_ms: float, budget_ms: float
) -> None:
    spans = [span(*item) for item in shape]
    if has_request:
        spans.append(root(ttft_ms, budget_ms, 300))
    built = waterfall.build(spans)
    assert sorted(row.span.span_id for row in built.rows) == sorted(item.span_id for item in spans)
    assert built.rows[0].depth == 0
    for before, after in zip(built.rows, built.rows[1:], strict=False):
        assert after.depth <= before.depth + 1
    for row in built.rows:
        left, width = built.ruler.bar(row.offset_ms, row.duration_ms)
        assert 0 <= left <= 100
        assert 0 <= width <= 100.000001 - left
    assert len(built.ruler.ticks()) <= 8
    at_ms = 0.0
    for piece in built.path:
        assert at_ms == piece.start_ms <= piece.end_ms
        at_ms = piece.end_ms
    if built.path and built.request is not None:
        assert at_ms == built.request.spent_ms

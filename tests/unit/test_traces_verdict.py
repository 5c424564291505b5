"""One sentence a request, against spans whose numbers are known."""

from typing import Any

import msgspec
from tests.unit import traces_ledger as ledger

from sub100_shared import semconv
from sub100_traces import verdict, waterfall
from sub100_traces.spans import Span


def worker(*phases: tuple[str, float, float], parent: int, shift_ms: float = 0.0) -> list[Span]:
    """The process span of a worker and its engine's phases (name, start, length)."""
    origin = {"service": "sub100-prefill", "instance": "prefill-2"}
    spans = [ledger.span(1, 50, 7 + shift_ms, 77 + shift_ms, parent=parent, name="prefill.process", **origin)]
    for i, (name, start_ms, length_ms) in enumerate(phases):
        begin = start_ms + shift_ms
        spans.append(ledger.span(1, 60 + i, begin, begin + length_ms, parent=50, name=name, **origin))
    return spans


def late(*more: Span, **root: Any) -> waterfall.Waterfall:
    prefill = ledger.hop(1, "prefill", 6, 72, 60, worker="prefill-2", span_number=9)
    hops = [hop for hop in ledger.hops(1) if hop.name != "prefill.job"]
    return waterfall.build([ledger.root(1, **root), prefill, *hops, *more])


def test_sentence_names_the_hop_its_allotment_its_parts_and_its_worker() -> None:
    phases = ((semconv.ENGINE_QUEUE, 8, 40.0), (semconv.ENGINE_COMPUTE, 48, 28.0))
    shown = late(*worker(*phases, parent=9))
    assert verdict.sentence(shown) == (
        "prefill took 72 ms of its 60: queue 40 ms, compute 28 ms on worker prefill-2; "
        "first token after 111 ms, 11 ms over its 100"
    )


def test_sentence_counts_all_attempts_of_the_blamed_hop() -> None:
    lost = ledger.hop(1, "prefill", 5, 1.0, 60, worker="prefill-1", span_number=8)
    shown = late(lost, **{semconv.ATTEMPTS: 2})
    assert verdict.explain(shown, "prefill") == (
        "prefill took 73 ms of its 60: 2 attempts on worker prefill-1, then prefill-2"
    )
    assert [(row.span.span_id[-1], row.attempt) for row in shown.rows if row.hop == "prefill"] == [
        ("8", 1),
        ("9", 2),
    ]
    assert verdict.notes(shown) == []
    in_time: dict[str, Any] = {semconv.ATTEMPTS: 2, semconv.BLAME: ""}
    assert verdict.notes(late(lost, **in_time)) == ["2 attempts"]


def test_sentence_says_when_the_budget_was_met() -> None:
    shown = waterfall.build([ledger.root(1, **{semconv.TTFT_MS: 40.0, semconv.BLAME: ""})])
    assert verdict.sentence(shown) == "first token after 70 ms of 100"


def test_sentence_of_a_failure_names_its_code() -> None:
    values: dict[str, Any] = {semconv.TTFT_MS: None, semconv.CODE: "no_capacity", semconv.BLAME: ""}
    assert (
        verdict.sentence(waterfall.build([ledger.root(1, **values)]))
        == "failed with no_capacity after 400 ms"
    )


def test_sentence_of_an_answer_without_content_blames_nobody() -> None:
    shown = waterfall.build([ledger.root(1, **{semconv.TTFT_MS: None, semconv.CANCELLED: True})])
    assert verdict.sentence(shown) == "no content came in 400 ms"
    assert verdict.notes(shown) == ["the client left before the end"]


def test_sentence_is_empty_without_the_requests_own_span() -> None:
    assert verdict.sentence(waterfall.build(ledger.hops(1))) == ""


def test_path_sums_to_the_first_token_and_leaves_gaps_to_ingress() -> None:
    shown = late()
    assert [(piece.hop, piece.start_ms, piece.end_ms) for piece in shown.path] == [
        ("network", 0, 30),
        ("ingress", 30, 31),
        ("schedule", 31, 35),
        ("ingress", 35, 36),
        ("prefill", 36, 108),
        ("ingress", 108, 111),
    ]


def test_rows_tell_what_ran_beside_from_what_came_after() -> None:
    rows = {row.span.name: row for row in late().rows}
    assert {name for name, row in rows.items() if row.is_hidden} == {"cache.job"}
    assert {name for name, row in rows.items() if row.is_after} == {"decode.job"}
    assert rows["prefill.job"].own_ms == (36.25, 71.5)


def test_skewed_worker_is_moved_into_its_hop_with_all_that_is_its() -> None:
    """O08: three seconds behind or ahead, the waterfall is the same but for the half of the bus."""
    phases = ((semconv.ENGINE_QUEUE, 8, 40.0), (semconv.ENGINE_COMPUTE, 48, 28.0))
    plain = [(row.span.name, row.offset_ms) for row in late(*worker(*phases, parent=9)).rows]
    for shift_ms in (-3000.0, 3000.0):
        shown = late(*worker(*phases, parent=9, shift_ms=shift_ms))
        assert [(row.span.name, row.offset_ms) for row in shown.rows] == plain
        assert shown.max_shift_ms == -shift_ms
        assert verdict.notes(shown) == ["clocks of processes differ by up to 3000 ms: corrected here"]


def test_worker_that_outlasts_its_hop_is_not_taken_for_skewed() -> None:
    origin = {"service": "sub100-prefill", "instance": "prefill-2"}
    shown = late(ledger.span(1, 50, 7, 90, parent=9, name="prefill.process", **origin))
    assert shown.max_shift_ms == 0


def test_hop_that_goes_on_after_the_first_token_counts_only_up_to_it() -> None:
    """Decode alone: one job prefills and streams, so its span is longer than what it spent of the budget."""
    hop = ledger.hop(1, "prefill", 6, 72, 60, worker="decode-1", span_number=9)
    longer = msgspec.structs.replace(hop, end_ns=hop.end_ns + 300 * ledger.MS)
    shown = waterfall.build([ledger.root(1), longer])
    assert [(piece.hop, piece.end_ms - piece.start_ms) for piece in shown.path] == [
        ("network", 30),
        ("ingress", 6),
        ("prefill", 72),
        ("ingress", 3),
    ]
    assert shown.rows[1].own_ms == (36.25, 71.5)

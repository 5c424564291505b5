"""The policy: filter -> score -> pick, on a fleet given by hand."""

from collections.abc import Mapping

import msgspec
import pytest
from tests.unit.scheduler_beats import RULES, beat, request

from sub100_proto.budget import Budget
from sub100_proto.fleet import Limits, Load
from sub100_proto.placement import Placement, PlaceRequest, Rejected, WorkerRef
from sub100_scheduler.fleet import WorkerView
from sub100_scheduler.policy import Rules, num_queued_tokens, num_uncached_tokens, place
from sub100_scheduler.predictor import Predictor


def decide(
    workers: list[WorkerView],
    asked: PlaceRequest,
    *,
    matched: Mapping[str, int] | None = None,
    rules: Rules = RULES,
    now_ms: float = 0.0,
) -> Placement | Rejected:
    return place(
        workers,
        matched or {},
        asked,
        Predictor(),
        rules,
        now_ms=now_ms,
        placement_id="x-1",
        chance=lambda: 0.5,
    )


def placed(*args: object, **kwargs: object) -> Placement:
    answer = decide(*args, **kwargs)  # type: ignore[arg-type]
    assert isinstance(answer, Placement), answer
    return answer


def rejected(*args: object, **kwargs: object) -> Rejected:
    answer = decide(*args, **kwargs)  # type: ignore[arg-type]
    assert isinstance(answer, Rejected), answer
    return answer


def prefill(worker_id: str, **changed: object) -> WorkerView:
    return WorkerView(beat(worker_id, "prefill", **changed), 0)  # type: ignore[arg-type]


def decode(worker_id: str, **changed: object) -> WorkerView:
    return WorkerView(beat(worker_id, "decode", **changed), 0)  # type: ignore[arg-type]


def booked(num_tokens: int) -> dict[str, object]:
    """A worker's book with so much in its queue of at most 10,000 tokens."""
    return {
        "limits": Limits(max_jobs=256, max_queued_tokens=10_000),
        "num_queued_tokens": num_tokens,
    }


def where(answer: Placement) -> tuple[str | None, str]:
    return answer.prefill.worker_id if answer.prefill else None, answer.decode.worker_id


def test_pair_is_the_default_and_names_the_lives() -> None:
    answer = placed([prefill("p", epoch=7), decode("d", epoch=9)], request(64))
    assert answer == Placement(
        placement_id="x-1",
        prefill=WorkerRef(worker_id="p", epoch=7),
        decode=WorkerRef(worker_id="d", epoch=9),
        predicted_ttft_ms=answer.predicted_ttft_ms,
        why="pair",
    )
    assert answer.predicted_ttft_ms == pytest.approx(4 + 64 * 0.05)
    assert num_uncached_tokens(request(64), answer) == 64


def test_request_for_one_worker_gets_decode_alone() -> None:
    asked = request(2_048, decode_alone=True)
    answer = placed([prefill("p"), decode("d")], asked)
    assert where(answer) == (None, "d")
    assert num_uncached_tokens(asked, answer) == 2_048
    assert rejected([prefill("p")], asked).code == "no_capacity"


def test_prefill_goes_where_the_prefix_is_when_both_are_idle() -> None:
    workers = [prefill("a"), prefill("b"), decode("d")]
    answer = placed(workers, request(2_048), matched={"b": 32})
    assert where(answer) == ("b", "d")
    assert answer.cached_tokens_prefill == 1_024
    assert num_uncached_tokens(request(2_048), answer) == 1_024


def test_prefill_leaves_the_prefix_when_its_queue_costs_more_than_it_saves() -> None:
    busy = prefill("b", load=Load(num_waiting=3, num_waiting_tokens=1_500))
    answer = placed([prefill("a"), busy, decode("d")], request(2_048), matched={"b": 32})
    assert where(answer) == ("a", "d")


def test_last_prompt_token_is_always_computed() -> None:
    answer = placed([prefill("p"), decode("d")], request(64), matched={"p": 2})
    assert answer.cached_tokens_prefill == 63
    assert num_uncached_tokens(request(64), answer) == 1


def test_prediction_counts_the_queue_ahead() -> None:
    busy = prefill("p", load=Load(num_waiting_tokens=1_000))
    assert placed([busy, decode("d")], request(1_000)).predicted_ttft_ms == pytest.approx(4 + 2_000 * 0.05)


def test_near_ties_go_to_the_least_in_flight() -> None:
    first, second = prefill("a"), prefill("b")
    first.inflight_decodes = 1
    assert where(placed([first, second, decode("d")], request(10))) == ("b", "d")


def test_decode_goes_to_the_least_pressed() -> None:
    workers = [
        prefill("p"),
        decode("full", load=Load(kv_usage=0.9)),
        decode("busy", load=Load(num_running=128)),
        decode("free", load=Load(num_running=20, kv_usage=0.1)),
    ]
    assert where(placed(workers, request(64))) == ("p", "free")


def test_decode_prefers_the_prefix_within_reason() -> None:
    near = [prefill("p"), decode("a", load=Load(kv_usage=0.1)), decode("b", load=Load(kv_usage=0.2))]
    assert where(placed(near, request(8_192), matched={"b": 256})) == ("p", "b")
    far = [prefill("p"), decode("a", load=Load(kv_usage=0.1)), decode("b", load=Load(kv_usage=0.5))]
    assert where(placed(far, request(8_192), matched={"b": 256})) == ("p", "a")


@pytest.mark.parametrize(
    "changed",
    [{"state": "starting"}, {"state": "draining"}, {"model": "other"}, {"max_model_len": 64}],
    ids=["starting", "draining", "model", "context"],
)
def test_worker_that_cannot_serve_is_left_out(changed: dict[str, object]) -> None:
    workers = [prefill("no", **changed), prefill("p"), decode("no2", **changed), decode("d")]
    for worker in (workers[1], workers[3]):
        worker.inflight_decodes = 9
    assert where(placed(workers, request(64))) == ("p", "d")


def test_worker_that_has_lapsed_is_left_out_before_it_is_removed() -> None:
    silent, heard = prefill("a"), prefill("b")
    heard.last_seen_ms = 1_000
    partner = decode("d")
    partner.last_seen_ms = 1_000
    assert where(placed([silent, heard, partner], request(64), now_ms=1_600)) == ("b", "d")


def test_avoided_workers_are_left_out() -> None:
    workers = [prefill("a"), prefill("b"), decode("c"), decode("d")]
    assert where(placed(workers, request(64, avoid=("a", "c")))) == ("b", "d")
    answer = rejected(workers, request(64, avoid=("c", "d")))
    assert (answer.code, answer.reason) == ("no_capacity", "no other worker is left for this request")


def test_restarted_worker_is_not_the_one_to_avoid() -> None:
    workers = [decode("d", epoch=7)]
    assert rejected(workers, request(64, avoid=("d",), avoid_epochs=(7,))).code == "no_capacity"
    assert where(placed(workers, request(64, avoid=("d",), avoid_epochs=(6,)))) == (None, "d")


def test_decode_alone_when_no_prefill_worker_is_left() -> None:
    workers = [prefill("p"), decode("d")]
    assert where(placed(workers, request(64, avoid=("p",)))) == (None, "d")


def test_stream_that_goes_on_runs_on_decode_alone_with_its_full_context() -> None:
    asked = request(64, num_output_tokens=100)
    answer = placed([prefill("p"), decode("d")], asked, matched={"d": 1})
    assert where(answer) == (None, "d")
    assert answer.cached_tokens_decode == 32
    assert num_uncached_tokens(asked, answer) == 132
    assert answer.predicted_ttft_ms == pytest.approx(4 + 132 * 0.05)


def test_prefill_worker_alone_serves_nothing() -> None:
    assert rejected([prefill("p")], request(64)).code == "no_capacity"


@pytest.mark.parametrize(
    ("threshold", "num_blocks", "expected"),
    [(0, 2, "p"), (32, 1, None), (32, 0, "p"), (31, 1, "p")],
    ids=["off", "nearly all", "no prefix", "too much left"],
)
def test_decode_works_alone_where_it_holds_nearly_all(
    threshold: int, num_blocks: int, expected: str | None
) -> None:
    rules = msgspec.structs.replace(RULES, decode_alone_tokens=threshold)
    answer = placed([prefill("p"), decode("d")], request(64), matched={"d": num_blocks}, rules=rules)
    assert where(answer) == (expected, "d")
    assert answer.why == ("pair" if expected else "short_uncached")


SHORT = msgspec.structs.replace(RULES, decode_alone_tokens=256)
"""Rules of a deployment; the predictor's prior is 4 ms a chunk and 0.05 ms a token."""


def test_decode_works_alone_when_that_is_quicker_than_a_handover() -> None:
    """64 of 2,048 tokens are left on both: 7.2 ms here; there 7.2, and 1.5 + 0.01 x 64 for the hand-over."""
    workers = [prefill("p"), decode("d")]
    matched = {"p": 62, "d": 62}
    assert where(placed(workers, request(2_048), matched=matched, rules=SHORT)) == (None, "d")
    busy = decode("d", load=Load(num_waiting_tokens=100))
    assert where(placed([prefill("p"), busy], request(2_048), matched=matched, rules=SHORT)) == ("p", "d")


def test_decode_works_alone_only_where_its_streams_hardly_notice() -> None:
    """128 tokens would hold a step up by 6.4 ms."""
    matched = {"d": 60}
    idle, running = decode("d"), decode("d", load=Load(num_running=1))
    assert where(placed([prefill("p"), idle], request(2_048), matched=matched, rules=SHORT)) == (None, "d")
    assert where(placed([prefill("p"), running], request(2_048), matched=matched, rules=SHORT)) == ("p", "d")
    less = placed([prefill("p"), running], request(2_048), matched={"d": 61}, rules=SHORT)
    assert where(less) == (None, "d")


def test_decode_works_alone_where_prefill_is_full_and_little_is_left() -> None:
    full = prefill("p", **booked(9_999))
    assert where(placed([full, decode("d")], request(64), matched={"d": 1}, rules=SHORT)) == (None, "d")
    assert rejected([full, decode("d")], request(64), rules=SHORT).code == "queue_full"
    both = [full, decode("d", **booked(9_999))]
    assert rejected(both, request(64), matched={"d": 1}, rules=SHORT).code == "queue_full"


def test_placement_says_why_decode_is_alone() -> None:
    workers = [prefill("p"), decode("d")]
    assert placed(workers, request(64, num_output_tokens=3)).why == "resumed"
    assert placed(workers, request(64, decode_alone=True)).why == "asked_for"
    assert placed([decode("d")], request(64)).why == "no_prefill_worker"


def test_pair_never_spans_pools() -> None:
    workers = [prefill("p1", pool="one"), decode("d2", pool="two"), prefill("p2", pool="two")]
    assert where(placed(workers, request(64))) == ("p2", "d2")
    assert rejected([prefill("p1", pool="one")], request(64)).code == "no_capacity"


def test_pool_that_meets_the_budget_wins_over_one_under_less_pressure() -> None:
    slow = prefill("p1", pool="one", load=Load(num_waiting_tokens=5_000))
    workers = [
        slow,
        decode("d1", pool="one"),
        prefill("p2", pool="two"),
        decode("d2", pool="two", load=Load(kv_usage=0.7)),
    ]
    assert where(placed(workers, request(64))) == ("p2", "d2")
    ample = request(64, budget=Budget(total_ms=900, remaining_ms=900, allotted_ms=5))
    assert where(placed(workers, ample)) == ("p1", "d1")


def test_full_prefill_queues_refuse_with_the_time_that_they_need() -> None:
    full, fuller = prefill("p", **booked(9_000)), prefill("q", **booked(60_000))
    answer = rejected([full, fuller, decode("d")], request(21_000))
    assert answer.code == "queue_full"
    assert answer.retry_after_s == pytest.approx((9_000 + 21_000 - 10_000) * 0.05 / 1_000)


def test_idle_worker_takes_a_prompt_longer_than_any_queue() -> None:
    idle = prefill("p", **booked(0))
    assert where(placed([idle, decode("d")], request(50_000))) == ("p", "d")


def test_decode_worker_with_a_full_queue_pulls_a_prompts_kv_and_computes_none() -> None:
    """A running stream's prompt is in nobody's queue, and one that is pulled never was."""
    full = decode("d", num_jobs=9, **booked(9_999))
    assert where(placed([prefill("p"), full], request(8_192))) == ("p", "d")
    assert where(placed([prefill("p"), full], request(64, num_output_tokens=3))) == ("p", "d")
    reason = rejected([prefill("p"), full], request(64, decode_alone=True)).reason
    assert reason == "every decode worker is full"
    assert (
        rejected([prefill("p", **booked(9_999)), full], request(64, num_output_tokens=3)).code == "queue_full"
    )
    no_pulls = decode("d", kv_fault="pulls fail", **booked(9_999))
    for workers in ([full], [prefill("p"), no_pulls]):
        assert rejected(workers, request(64)).code == "queue_full"


def test_stream_whose_kv_waits_goes_where_it_can_be_pulled_and_queues_nothing() -> None:
    """Into the KV's own pool, whatever waits there; no prefill worker is asked, and none need have room."""
    asked = request(8_192, num_output_tokens=1, kv_at="p1")
    far = decode("d2", pool="two")
    near = decode("d1", pool="one", load=Load(kv_usage=0.9), **booked(9_999))
    workers = [prefill("p1", pool="one", **booked(9_999)), near, prefill("p2", pool="two"), far]
    answer = placed(workers, asked)
    assert where(answer) == (None, "d1")
    assert num_uncached_tokens(asked, answer) == num_queued_tokens(asked, answer) == 0
    no_pulls = decode("d0", pool="one", kv_fault="pulls fail")
    assert where(placed([no_pulls, *workers], asked)) == (None, "d1")
    assert where(placed([workers[0], far], asked)) == (None, "d2")


def test_worker_with_all_its_places_taken_is_full() -> None:
    """By its own count, whatever its engine says and however few wait."""
    full = {"limits": Limits(max_jobs=9, max_queued_tokens=10_000), "num_jobs": 9}
    assert rejected([prefill("p"), decode("d", **full)], request(64)).code == "queue_full"
    assert rejected([prefill("p", **full), decode("d")], request(64)).code == "queue_full"
    room = decode("e", **full | {"num_jobs": 8})
    assert where(placed([prefill("p"), decode("d", **full), room], request(64))) == ("p", "e")


def test_full_decode_workers_refuse() -> None:
    workers = [prefill("p"), decode("d", max_num_seqs=4, load=Load(num_running=4, num_waiting=12))]
    assert rejected(workers, request(64)).code == "queue_full"


def test_prompt_over_every_context_is_the_clients_error() -> None:
    workers = [prefill("p", max_model_len=64), decode("d", max_model_len=64)]
    assert rejected(workers, request(64)).code == "context_length_exceeded"
    assert where(placed(workers, request(63))) == ("p", "d")


def test_refusal_says_sooner_when_workers_are_starting() -> None:
    starting = rejected([prefill("p", state="starting"), decode("d", state="starting")], request(64))
    nobody = rejected([], request(64))
    assert (starting.code, nobody.code) == ("no_capacity", "no_capacity")
    assert 0 < starting.retry_after_s < nobody.retry_after_s


# -- workers whose KV transfers fail

FAULT = "KV transfers fail"


def test_decode_worker_whose_transfers_fail_is_in_no_pair() -> None:
    workers = [prefill("p"), decode("bad", kv_fault=FAULT), decode("d", load=Load(num_running=200))]
    assert where(placed(workers, request(64))) == ("p", "d")


def test_prefill_worker_whose_transfers_fail_is_not_placed() -> None:
    busy = prefill("p", load=Load(num_waiting_tokens=50_000))
    assert where(placed([prefill("bad", kv_fault=FAULT), busy, decode("d")], request(64))) == ("p", "d")


def test_decode_worker_whose_transfers_fail_still_computes_what_needs_no_hand_over() -> None:
    workers = [prefill("p"), decode("bad", kv_fault=FAULT), decode("d", load=Load(num_running=200))]
    assert where(placed(workers, request(64, decode_alone=True))) == (None, "bad")
    assert where(placed(workers, request(64, num_output_tokens=3))) == (None, "bad")


def test_request_is_served_alone_when_every_decode_workers_transfers_fail() -> None:
    answer = placed([prefill("p"), decode("bad", kv_fault=FAULT)], request(2_048))
    assert (where(answer), answer.why) == ((None, "bad"), "kv_transfers_fail")


def test_request_is_served_alone_when_every_prefill_workers_transfers_fail() -> None:
    answer = placed([prefill("bad", kv_fault=FAULT), decode("d")], request(2_048))
    assert (where(answer), answer.why) == ((None, "d"), "no_prefill_worker")


# -- streams that go on elsewhere


def test_stream_that_goes_on_gets_its_kv_from_a_prefill_worker_that_still_has_it() -> None:
    """Alone 4 + 2,058 x 0.05; there 4 + 32 x 0.05, 1.5 + 2,048 x 0.01 to hand over, 4 + 10 x 0.05 for what
    has been said."""
    asked = request(2_048, num_output_tokens=10)
    answer = placed([prefill("p"), prefill("cold"), decode("d")], asked, matched={"p": 63})
    assert (where(answer), answer.why) == (("p", "d"), "resumed")
    assert num_uncached_tokens(asked, answer) == 32
    assert answer.predicted_ttft_ms == pytest.approx(5.6 + 1.5 + 20.48 + 4.5)


@pytest.mark.parametrize("matched", [{}, {"p": 63, "d": 63}], ids=["nobody has it", "decode has it too"])
def test_stream_that_goes_on_stays_alone_where_a_hand_over_is_no_sooner(matched: dict[str, int]) -> None:
    answer = placed([prefill("p"), decode("d")], request(2_048, num_output_tokens=10), matched=matched)
    assert (where(answer), answer.why) == ((None, "d"), "resumed")


def test_stream_that_goes_on_is_handed_over_to_no_worker_whose_transfers_fail() -> None:
    asked, matched = request(2_048, num_output_tokens=10), {"p": 63}
    bad = decode("bad", kv_fault=FAULT)
    assert where(placed([prefill("p"), bad, decode("d")], asked, matched=matched)) == ("p", "d")
    assert where(placed([prefill("p"), bad], asked, matched=matched)) == (None, "bad")

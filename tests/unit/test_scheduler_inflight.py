"""Placements count on their workers from the moment they are made until they are settled."""

from tests.unit.scheduler_beats import beat, request, view

from sub100_proto.fleet import Limits
from sub100_proto.placement import Placed, Placement, Rejected, Settled
from sub100_scheduler.fleet import WorkerView
from sub100_scheduler.inflight import InFlight


def pair() -> tuple[WorkerView, WorkerView]:
    return WorkerView(beat("p"), 0), WorkerView(beat("d", "decode"), 0)


def counts(*workers: WorkerView) -> list[tuple[int, int, int]]:
    return [
        (worker.inflight_prefills, worker.inflight_prefill_tokens, worker.inflight_decodes)
        for worker in workers
    ]


def add(inflight: InFlight, key: str, p: WorkerView | None, d: WorkerView | None, now_ms: float = 0) -> None:
    inflight.add(key, prefill=p, decode=d, num_tokens=100, num_queued_tokens=300, now_ms=now_ms)


def test_prefill_is_freed_at_the_first_token_and_decode_at_the_last() -> None:
    inflight = InFlight(ttl_ms=1_000, limit=10)
    p, d = pair()
    add(inflight, "x", p, d)
    assert counts(p, d) == [(1, 100, 0), (0, 0, 1)]
    inflight.settle("x", "prefill")
    inflight.settle("x", "prefill")
    assert counts(p, d) == [(0, 0, 0), (0, 0, 1)]
    inflight.settle("x", "all")
    inflight.settle("x", "all")
    assert counts(p, d) == [(0, 0, 0), (0, 0, 0)]
    assert len(inflight) == 0


def test_placements_fill_a_workers_book_before_its_heartbeat_does_on_every_replica() -> None:
    """With all of their tokens: the worker does not know which of them it has cached."""
    limits = Limits(max_jobs=9, max_queued_tokens=10_000)
    regions = [view(beat("p", limits=limits), beat("d", "decode")) for _ in range(2)]
    first, replica = regions
    assert isinstance(first.place(request(6_000), "x", 0), Placement)
    replica.on_placed(
        Placed(scheduler_id="s", placement_id="x", prefill="p", decode="d", num_queued_tokens=6_000), 0
    )
    for region in regions:
        assert isinstance(region.place(request(4_000), "y", 0), Placement)
        assert isinstance(region.place(request(4_000), "z", 0), Rejected)
        region.on_settled(Settled(placement_id="x", phase="prefill"))
        assert isinstance(region.place(request(4_000), "z", 0), Placement)


def test_abandoned_placement_frees_both() -> None:
    inflight = InFlight(ttl_ms=1_000, limit=10)
    p, d = pair()
    add(inflight, "x", p, d)
    inflight.settle("x", "all")
    assert counts(p, d) == [(0, 0, 0), (0, 0, 0)]


def test_decode_alone_holds_both_shares_on_one_worker() -> None:
    inflight = InFlight(ttl_ms=1_000, limit=10)
    _, d = pair()
    add(inflight, "x", d, d)
    assert counts(d) == [(1, 100, 1)]
    inflight.settle("x", "decode")
    assert counts(d) == [(0, 0, 0)]


def test_unsettled_placement_ends_with_its_time_to_live() -> None:
    inflight = InFlight(ttl_ms=1_000, limit=10)
    p, d = pair()
    add(inflight, "x", p, d, now_ms=0)
    add(inflight, "y", p, d, now_ms=500)
    assert inflight.expire(1_000) == 1
    assert counts(p, d) == [(1, 100, 0), (0, 0, 1)]


def test_oldest_placement_gives_way_at_the_limit() -> None:
    inflight = InFlight(ttl_ms=1_000, limit=2)
    p, d = pair()
    for key in "xyz":
        add(inflight, key, p, d)
    assert len(inflight) == 2
    assert counts(p) == [(2, 200, 0)]


def test_placement_heard_of_after_its_end_does_not_count() -> None:
    inflight = InFlight(ttl_ms=1_000, limit=10)
    p, d = pair()
    inflight.settle("x", "all")
    add(inflight, "x", p, d)
    assert counts(p, d) == [(0, 0, 0), (0, 0, 0)]


def test_placement_on_an_unknown_worker_counts_where_it_can() -> None:
    inflight = InFlight(ttl_ms=1_000, limit=10)
    _, d = pair()
    add(inflight, "x", None, d)
    inflight.settle("x", "prefill")
    inflight.settle("x", "all")
    assert counts(d) == [(0, 0, 0)]

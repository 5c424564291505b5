"""Field cases R01-R04 and R08 on virtual time: the scheduler's view against workers that really queue."""

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Iterable

from tests.unit.scheduler_beats import BLOCK, beat, prompt_hashes, request, view

from sub100_proto.fleet import KvDump, KvEvents, Load
from sub100_proto.placement import Placed, Placement, PlaceRequest, Rejected, Settled
from sub100_scheduler.policy import num_uncached_tokens
from sub100_scheduler.view import RegionView

MS_PER_TOKEN = 0.05
FIXED_MS = 4.0
MEAN_GAP_MS = 17.0
"""A warm hot request takes 10 ms, a cold one 106: four workers are 85 % busy."""


class Worker:
    """A prefill worker: one prompt at a time, first come first served, a prefix cache without bound."""

    def __init__(self, worker_id: str) -> None:
        self.worker_id = worker_id
        self.free_at_ms = 0.0
        self.busy_ms = 0.0
        self.blocks: set[bytes] = set()
        self.seq = 0

    def run(self, asked: PlaceRequest, now_ms: float) -> tuple[float, int]:
        """When its first token is out, and how many tokens were cached when it came to the prompt."""
        chain = [asked.block_hashes[i : i + 8] for i in range(0, len(asked.block_hashes), 8)]
        hits = itertools.takewhile(self.blocks.__contains__, chain)
        cached = min(BLOCK * sum(1 for _ in hits), asked.num_prompt_tokens - 1)
        computed = asked.num_prompt_tokens - cached
        took_ms = FIXED_MS + MS_PER_TOKEN * computed
        self.busy_ms += took_ms
        self.free_at_ms = max(self.free_at_ms, now_ms) + took_ms
        self.blocks.update(chain)
        return self.free_at_ms, cached


class Outcome:
    """What became of a run: requests by worker, TTFTs, cached tokens."""

    def __init__(self) -> None:
        self.by_worker: Counter[str] = Counter()
        self.ttfts_ms: list[float] = []
        self.num_cached = 0

    def p99_ms(self) -> float:
        return sorted(self.ttfts_ms)[int(0.99 * len(self.ttfts_ms))]


def replay(
    arrivals: Iterable[tuple[float, PlaceRequest]], workers: list[Worker], region: RegionView | None
) -> Outcome:
    """Run the arrivals; without a view the workers take turns."""
    outcome = Outcome()
    turns = itertools.cycle(workers)
    by_id = {worker.worker_id: worker for worker in workers}
    done: list[tuple[float, str, Worker, bytes, int, float]] = []
    for number, (now_ms, asked) in enumerate(arrivals):
        while done and done[0][0] <= now_ms:
            _, placement_id, worker, hashes, computed, took_ms = heapq.heappop(done)
            if region is not None:
                settle_first_token(region, placement_id, worker, hashes, computed, took_ms)
        placement_id = f"r-{number}"
        if region is None:
            worker = next(turns)
        else:
            for key in by_id:
                region.on_heartbeat(beat(key), now_ms)
            region.on_heartbeat(beat("d", "decode", max_num_seqs=10_000), now_ms)
            answer = region.place(asked, placement_id, now_ms)
            assert isinstance(answer, Placement)
            assert answer.prefill is not None
            worker = by_id[answer.prefill.worker_id]
        started_ms = max(worker.free_at_ms, now_ms)
        end_ms, cached = worker.run(asked, now_ms)
        computed = asked.num_prompt_tokens - cached
        heapq.heappush(
            done, (end_ms, placement_id, worker, asked.block_hashes, computed, end_ms - started_ms)
        )
        outcome.by_worker[worker.worker_id] += 1
        outcome.ttfts_ms.append(end_ms - now_ms)
        outcome.num_cached += cached
    return outcome


def settle_first_token(
    region: RegionView, placement_id: str, worker: Worker, hashes: bytes, computed: int, took_ms: float
) -> None:
    worker.seq += 1
    region.feed.on_events(KvEvents(worker_id=worker.worker_id, epoch=1, seq=worker.seq, stored=hashes))
    region.on_settled(
        Settled(
            placement_id=placement_id,
            phase="prefill",
            worker_id=worker.worker_id,
            role="prefill",
            prefill_ms=took_ms,
            num_computed_tokens=computed,
        )
    )


def fleet_of(*worker_ids: str, seed: int = 1) -> RegionView:
    region = view(*(beat(key) for key in worker_ids), beat("d", "decode"), seed=seed)
    for key in (*worker_ids, "d"):
        region.feed.on_dump(KvDump(worker_id=key, epoch=1, seq=0, hashes=b""))
    return region


def hot_and_cold() -> list[tuple[float, PlaceRequest]]:
    """400 requests for four workers near capacity: half share a 4k system prompt, half are unique."""
    chance = random.Random(5)
    now_ms, arrivals = 0.0, []
    for number in range(400):
        now_ms += chance.expovariate(1 / MEAN_GAP_MS)
        shared = 4_096 if number % 2 else 0
        hashes = prompt_hashes(4_224 if shared else 2_048, seed=number, shared=shared)
        arrivals.append((now_ms, request(4_224 if shared else 2_048, block_hashes=hashes)))
    return arrivals


def test_r01_hot_prefix_spreads_by_load_and_keeps_its_hits() -> None:
    names = ["a", "b", "c", "e"]
    workers, others = [Worker(key) for key in names], [Worker(key) for key in names]
    ours = replay(hot_and_cold(), workers, fleet_of(*names))
    turns = replay(hot_and_cold(), others, None)
    # Load is time: a worker with the hot prefix may well take more requests than others.
    busiest = max(worker.busy_ms for worker in workers)
    assert busiest <= 1.5 * sum(worker.busy_ms for worker in workers) / 4
    assert ours.p99_ms() <= 2 * turns.p99_ms()
    # Turns warm every worker up, once each; unique prompts hit nothing anywhere.
    assert ours.num_cached >= 0.95 * turns.num_cached
    assert ours.num_cached >= 0.9 * 200 * 4_096


def test_r02_concurrent_long_prompts_split_evenly() -> None:
    region = fleet_of("a", "b")
    taken: Counter[str] = Counter()
    for number in range(8):
        asked = request(20_000, block_hashes=prompt_hashes(20_000, seed=number), max_tokens=1)
        answer = region.place(asked, f"r-{number}", 0)
        assert isinstance(answer, Placement)
        assert answer.prefill is not None
        taken[answer.prefill.worker_id] += 1
    assert taken == {"a": 4, "b": 4}


def test_r02_prefill_load_ends_at_the_first_token_not_with_the_decode() -> None:
    region = fleet_of("a")
    assert isinstance(region.place(request(64, max_tokens=10_000), "r-1", 0), Placement)
    prefill, decode = region.fleet.get("a"), region.fleet.get("d")
    assert prefill is not None
    assert decode is not None
    assert (prefill.num_tokens_ahead, decode.num_requests) == (64, 1)
    region.on_settled(Settled(placement_id="r-1", phase="prefill", worker_id="a", role="prefill"))
    assert (prefill.num_tokens_ahead, decode.num_requests) == (0, 1)


def burst(replicas: list[RegionView], num_requests: int) -> Counter[str]:
    """Requests arrive at the replicas in turn; each tells the others what it placed."""
    taken: Counter[str] = Counter()
    for number in range(num_requests):
        region = replicas[number % len(replicas)]
        asked = request(512, block_hashes=prompt_hashes(512, seed=number))
        answer = region.place(asked, f"r-{number}", float(number))
        assert isinstance(answer, Placement)
        assert answer.prefill is not None
        taken[answer.prefill.worker_id] += 1
        placed = Placed(
            scheduler_id="s",
            placement_id=answer.placement_id,
            decode=answer.decode.worker_id,
            prefill=answer.prefill.worker_id,
            num_uncached_tokens=num_uncached_tokens(asked, answer),
            max_tokens=16,
        )
        for other in replicas:
            if other is not region:
                other.on_placed(placed, float(number))
    return taken


def test_r03_burst_over_three_replicas_spreads() -> None:
    names = ("a", "b", "c", "e")
    taken = burst([fleet_of(*names, seed=seed) for seed in (1, 2, 3)], 32)
    assert all(6 <= taken[key] <= 10 for key in names), taken


def test_r03_burst_spreads_when_one_worker_has_just_turned_idle() -> None:
    names = ("a", "b", "c", "e")
    replicas = [fleet_of(*names, seed=seed) for seed in (1, 2, 3)]
    for region in replicas:
        for key in names[1:]:
            region.on_heartbeat(beat(key, load=Load(num_waiting=1, num_waiting_tokens=512)), 0)
    taken = burst(replicas, 32)
    assert all(6 <= taken[key] <= 10 for key in names), taken


def test_r04_dead_worker_is_neither_chosen_nor_remembered() -> None:
    region = fleet_of("a", "b")
    hot = prompt_hashes(2_048, seed=1)
    region.feed.on_events(KvEvents(worker_id="a", epoch=1, seq=1, stored=hot))
    assert region.index.match(hot) == {"a": 64}
    for now_ms in (500, 1_000, 1_500):
        region.on_heartbeat(beat("b"), now_ms)
        region.on_heartbeat(beat("d", "decode"), now_ms)
    # Silent for longer than its lease, not yet removed.
    for number in range(50):
        answer = region.place(request(2_048, block_hashes=hot), f"r-{number}", 1_600)
        assert isinstance(answer, Placement)
        assert answer.prefill is not None
        assert answer.prefill.worker_id == "b"
    region.tick(1_400)
    assert region.tick(1_600) == ["a"]
    assert region.index.match(hot) == {}
    region.feed.on_events(KvEvents(worker_id="a", epoch=1, seq=2, stored=hot))
    assert region.index.match(hot) == {}


def test_r04_retry_names_the_dead_worker_and_goes_elsewhere_before_the_lease_ends() -> None:
    region = fleet_of("a", "b")
    hot = prompt_hashes(2_048, seed=1)
    region.feed.on_events(KvEvents(worker_id="a", epoch=1, seq=1, stored=hot))
    answer = region.place(request(2_048, block_hashes=hot, avoid=("a",)), "r-1", 10)
    assert isinstance(answer, Placement)
    assert answer.prefill is not None
    assert answer.prefill.worker_id == "b"


def test_r08_loading_worker_gets_nothing_before_it_is_ready_and_no_pile_after() -> None:
    region = fleet_of("a")
    region.on_heartbeat(beat("new", state="starting"), 0)
    taken: Counter[str] = Counter()
    for number in range(40):
        if number == 20:
            region.on_heartbeat(beat("new"), number)
            assert taken == {"a": 20}
            # As many again: what was placed on the old worker has not been answered yet.
            for settled in range(20):
                region.on_settled(Settled(placement_id=f"r-{settled}", phase="all"))
        answer = region.place(request(512), f"r-{number}", number)
        assert isinstance(answer, Placement)
        assert answer.prefill is not None
        taken[answer.prefill.worker_id] += 1
    assert taken == {"a": 30, "new": 10}


def test_r08_requests_without_any_worker_are_refused_with_a_time_to_come_back() -> None:
    region = view()
    for number in range(200):
        answer = region.place(request(64), f"r-{number}", 0)
        assert isinstance(answer, Rejected)
        assert (answer.code, answer.retry_after_s) == ("no_capacity", 5.0)
    assert len(region.inflight) == 0


def test_stall_of_the_scheduler_itself_costs_no_worker() -> None:
    region = fleet_of("a")
    assert region.tick(100) == []
    assert region.tick(5_000) == []
    assert isinstance(region.place(request(64), "r-1", 5_001), Placement)
    assert region.tick(5_100) == []

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from tests.patience import PATIENCE_S
from tests.unit.ingress_exchange import exchange

from sub100_ingress.exchange import JOINED, MISS, Exchange
from sub100_ingress.flight import BURST, MAX_LAG, Flight
from sub100_ingress.text import ScoredToken
from sub100_proto.cache import CachedAnswer, CacheHit
from sub100_shared import semconv
from sub100_shared.errors import Evicted

HIT = CacheHit(
    answer=CachedAnswer(
        model="m", pieces=("Hel", "lo"), finish_reason="stop", num_prompt_tokens=7, num_completion_tokens=2
    ),
    tier="semantic",
    age_s=3.0,
    similarity=0.95,
)


class Client:
    """A delivery: what one client got. While ``stalled`` it takes nothing."""

    def __init__(self, *, stalled: bool = False) -> None:
        self.got: list[str] = []
        self.tiers: list[str] = []
        self.status = 0
        self.is_finished = False
        self.num_keep_alives = 0
        self.changed = asyncio.Event()
        self.can_read = asyncio.Event()
        self.ex: Exchange = exchange()
        if not stalled:
            self.can_read.set()

    async def text(self, text: str, scored: Sequence[ScoredToken] = ()) -> None:
        await self.can_read.wait()
        self.got.append(text)
        self.tiers.append(self.ex.tier)
        self.changed.set()

    async def keep_alive(self) -> None:
        self.num_keep_alives += 1
        self.changed.set()

    async def finish(self) -> None:
        self.is_finished = True
        self.changed.set()

    async def has(self, *pieces: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self.got != list(pieces):
                self.changed.clear()
                await self.changed.wait()


class Air:
    """A flight whose generation is the test: ``say``, ``flight.end``."""

    def __init__(self) -> None:
        self.leader = Client()
        self.flight = Flight(self.leader.ex)
        self.is_cancelled = False
        self.flight.task = asyncio.create_task(self._task())
        self._ended = asyncio.Event()

    async def _task(self) -> None:
        try:
            await self._ended.wait()
        except asyncio.CancelledError:
            self.is_cancelled = True
            raise

    def board(self, client: Client) -> "asyncio.Task[None]":
        return asyncio.create_task(self.flight.read(client.ex, client))

    async def say(self, *pieces: str) -> None:
        run = self.flight.run
        for piece in pieces:
            run.tier, run.cache = semconv.TIER_COLD, MISS
            run.pieces.append(piece)
            run.num_completion_tokens += 1
            async with asyncio.timeout(PATIENCE_S):
                await self.flight.text(piece)

    def land(self, error: Exception | None = None) -> None:
        self.flight.run.finish_reason = "" if error else "stop"
        self.flight.end(error)
        self._ended.set()


async def turns() -> None:
    """More turns of the loop than anything that can go on needs."""
    for _ in range(20 * MAX_LAG):
        await asyncio.sleep(0)


async def left(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=PATIENCE_S)
    assert task.cancelled()


async def test_follower_gets_everything_from_the_beginning_and_goes_on() -> None:
    air, follower = Air(), Client()
    reading = [air.board(air.leader)]
    await asyncio.sleep(0)
    await air.say("a", "b")
    await air.leader.has("a", "b")
    reading.append(air.board(follower))
    await follower.has("a", "b")
    await air.say("c")
    air.land()
    await asyncio.wait_for(asyncio.gather(*reading), PATIENCE_S)
    assert air.leader.got == follower.got == ["a", "b", "c"]
    assert air.leader.is_finished
    assert follower.is_finished
    assert (air.leader.ex.cache, follower.ex.cache) == (MISS, JOINED)
    assert follower.ex.num_completion_tokens == 3
    assert follower.ex.finish_reason == "stop"
    assert set(air.leader.tiers) == {semconv.TIER_COLD}  # known when the head of the response is written
    assert set(follower.tiers) == {semconv.TIER_JOINED}


async def test_leaving_leader_does_not_end_its_followers() -> None:
    air, follower = Air(), Client()
    leading, following = air.board(air.leader), air.board(follower)
    await asyncio.sleep(0)
    await air.say("a")
    await left(leading)
    await air.say("b")
    air.land()
    await asyncio.wait_for(following, PATIENCE_S)
    assert follower.got == ["a", "b"]
    assert not air.is_cancelled


async def test_last_reader_that_leaves_ends_the_generation_first() -> None:
    air, follower = Air(), Client()
    readers = [air.board(air.leader), air.board(follower)]
    await asyncio.sleep(0)
    await air.say("a")
    await left(readers[0])
    assert not air.flight.task.done()
    await left(readers[1])
    assert air.is_cancelled


@pytest.mark.parametrize("slow_one", ["leader", "follower"])
async def test_slow_reader_holds_nobody_up(slow_one: str) -> None:
    air, other = Air(), Client(stalled=slow_one == "follower")
    if slow_one == "leader":
        air.leader.can_read.clear()
    fast, slow = (other, air.leader) if slow_one == "leader" else (air.leader, other)
    readers = [air.board(air.leader), air.board(other)]
    await asyncio.sleep(0)
    words = [str(i) for i in range(4 * MAX_LAG)]
    await air.say(*words)
    await fast.has(*words)
    air.land()
    slow.can_read.set()
    await asyncio.wait_for(asyncio.gather(*readers), PATIENCE_S)
    assert slow.got == words


async def test_generation_waits_while_every_reader_is_far_behind() -> None:
    air, follower = Air(), Client(stalled=True)
    air.leader.can_read.clear()
    readers = [air.board(air.leader), air.board(follower)]
    await asyncio.sleep(0)
    saying = asyncio.create_task(air.say(*map(str, range(2 * MAX_LAG))))
    await turns()
    assert not saying.done()
    assert len(air.flight.run.pieces) <= MAX_LAG + 2
    follower.can_read.set()
    await asyncio.wait_for(saying, PATIENCE_S)
    await left(readers[0])
    air.land()
    await asyncio.wait_for(readers[1], PATIENCE_S)


async def test_generation_goes_on_when_the_readers_it_waits_for_leave() -> None:
    air, follower = Air(), Client()
    air.leader.can_read.clear()
    leading = air.board(air.leader)
    await asyncio.sleep(0)
    saying = asyncio.create_task(air.say(*map(str, range(2 * MAX_LAG))))
    await turns()
    assert not saying.done()
    following = air.board(follower)
    await asyncio.sleep(0)
    await left(leading)
    await asyncio.wait_for(saying, PATIENCE_S)
    air.land()
    await asyncio.wait_for(following, PATIENCE_S)
    assert len(follower.got) == 2 * MAX_LAG


async def test_error_reaches_all_readers_after_what_there_is() -> None:
    air, follower = Air(), Client()
    readers = [air.board(air.leader), air.board(follower)]
    await asyncio.sleep(0)
    await air.say("a")
    air.land(Evicted("worker_lost", "gone"))
    found = await asyncio.wait_for(asyncio.gather(*readers, return_exceptions=True), PATIENCE_S)
    assert [getattr(error, "code", None) for error in found] == ["worker_lost"] * 2
    assert air.leader.got == follower.got == ["a"]
    assert not follower.is_finished


async def test_hit_is_replayed_to_all_and_what_was_begun_is_forgotten() -> None:
    air, follower = Air(), Client()
    readers = [air.board(air.leader), air.board(follower)]
    await asyncio.sleep(0)
    run = air.flight.run
    run.output_ids, run.num_attempts, run.num_cached_tokens = [1, 2, 3], 2, 32
    air.flight.replay(HIT)
    air._ended.set()
    await asyncio.wait_for(asyncio.gather(*readers), PATIENCE_S)
    for client in (air.leader, follower):
        assert client.got == ["Hel", "lo"]
        assert client.tiers == ["cache_semantic"] * 2
        assert (client.ex.num_prompt_tokens, client.ex.num_completion_tokens) == (7, 2)
        assert (client.ex.num_attempts, client.ex.num_cached_tokens) == (0, 0)
        assert (client.ex.cache.outcome, client.ex.cache.similarity) == ("semantic", 0.95)


async def test_long_hit_leaves_turns_of_the_loop_to_other_streams() -> None:
    air = Air()
    reading = air.board(air.leader)
    await asyncio.sleep(0)
    pieces = tuple(str(number) for number in range(3 * BURST + 1))
    answer = msgspec.structs.replace(HIT.answer, pieces=pieces)
    air.flight.replay(msgspec.structs.replace(HIT, answer=answer))
    air._ended.set()
    written = [0]
    while not reading.done():
        await asyncio.sleep(0)
        written.append(len(air.leader.got))
    assert air.leader.got == list(pieces)
    assert max(after - before for before, after in itertools.pairwise(written)) == BURST


async def test_keep_alives_reach_all_readers() -> None:
    air, follower = Air(), Client()
    readers = [air.board(air.leader), air.board(follower)]
    await asyncio.sleep(0)
    await air.flight.keep_alive()
    await turns()
    await air.say("a")
    air.land()
    await asyncio.wait_for(asyncio.gather(*readers), PATIENCE_S)
    assert (air.leader.num_keep_alives, follower.num_keep_alives) == (1, 1)

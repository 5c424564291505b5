import asyncio

import pytest
from tests.patience import PATIENCE_S

from sub100_ingress.overlap import UntilHit
from sub100_proto.cache import CachedAnswer, CacheHit, CacheMiss, CacheReply

HIT = CacheHit(
    answer=CachedAnswer(
        model="m", pieces=("a",), finish_reason="stop", num_prompt_tokens=1, num_completion_tokens=1
    ),
    tier="exact",
    age_s=0.0,
)


def use(hit: CacheHit) -> bool:
    return True


class Lookup:
    """A look-up that the test answers."""

    def __init__(self) -> None:
        self._reply: asyncio.Future[CacheReply] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> CacheReply:
        return await self._reply

    def answer(self, reply: CacheReply | Exception) -> None:
        if isinstance(reply, Exception):
            self._reply.set_exception(reply)
        else:
            self._reply.set_result(reply)


async def test_hit_cuts_the_block_and_its_clean_up_runs() -> None:
    lookup, cleaned = Lookup(), []
    with UntilHit(lookup.task, use) as race:
        try:
            lookup.answer(HIT)
            await asyncio.wait_for(asyncio.Event().wait(), PATIENCE_S)
        finally:
            await asyncio.sleep(0)  # clean-up may wait
            cleaned.append(True)
    assert race.is_hit
    assert cleaned
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)  # nothing is left over that would cancel what follows


async def test_hit_is_read_before_the_block_has_cleaned_up() -> None:
    lookup, order = Lookup(), []
    has_hit = asyncio.Event()

    async def read() -> None:
        await has_hit.wait()
        order.append("read")

    def use(hit: CacheHit) -> bool:
        assert hit is HIT
        has_hit.set()
        return True

    reader = asyncio.create_task(read())
    await asyncio.sleep(0)
    with UntilHit(lookup.task, use):
        try:
            lookup.answer(HIT)
            await asyncio.wait_for(asyncio.Event().wait(), PATIENCE_S)
        finally:
            order.append("cleaned")
    await reader
    assert order == ["read", "cleaned"]


@pytest.mark.parametrize("reply", [CacheMiss(), RuntimeError("bug"), HIT], ids=["miss", "error", "too late"])
async def test_block_goes_on_unless_a_hit_is_in_time(reply: CacheReply | Exception) -> None:
    lookup = Lookup()
    with UntilHit(lookup.task, lambda _: False) as race:
        lookup.answer(reply)
        await asyncio.wait({lookup.task})
        await asyncio.sleep(0)
    assert not race.is_hit


async def test_hit_after_the_block_does_nothing() -> None:
    lookup = Lookup()
    with UntilHit(lookup.task, use) as race:
        await asyncio.sleep(0)
    lookup.answer(HIT)
    await asyncio.wait({lookup.task})
    await asyncio.sleep(0)
    assert not race.is_hit


async def test_cancellation_from_outside_wins_over_a_hit_at_the_same_time() -> None:
    async def block(lookup: Lookup) -> None:
        with UntilHit(lookup.task, use):
            await asyncio.Event().wait()
        raise AssertionError("went on")

    lookup = Lookup()
    task = asyncio.create_task(block(lookup))
    await asyncio.sleep(0)
    lookup.task.add_done_callback(lambda _: task.cancel())  # in the same turn of the loop
    lookup.answer(HIT)
    await asyncio.wait({task}, timeout=PATIENCE_S)
    assert task.cancelled()


async def test_errors_of_the_block_are_its_own() -> None:
    lookup = Lookup()
    with pytest.raises(RuntimeError, match="own"), UntilHit(lookup.task, use):
        raise RuntimeError("own")
    lookup.answer(CacheMiss())
    await lookup.task

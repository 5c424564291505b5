"""A region that was away, or whose store or log was: it serves nothing that was invalidated meanwhile."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from nats.aio.client import Client as Nats
from redis.asyncio import Redis
from tests.integration.cache_service import Client, running_cache
from tests.integration.two_regions import (
    CONFIG,
    OTHER_SCOPE,
    SCOPE,
    World,
    digest,
    is_absent,
    is_hit,
    position,
    until,
)
from tests.patience import PATIENCE_S
from tests.servers import Server, nats_server

from sub100_proto.cache import (
    CacheMiss,
    CacheReply,
)
from sub100_shared.bus import Bus, BusUnavailable, NoResponders

T = TypeVar("T")


async def test_region_that_was_away_serves_nothing_that_was_invalidated_meanwhile(world: World) -> None:
    async with world.running_us():
        for name, scope in (("q", SCOPE), ("elsewhere", OTHER_SCOPE)):
            await world.us.stored(digest(name), scope=scope)
        captured = await world.us.generation(digest("in flight"), scope=SCOPE)
    for number in range(200):  # more than a page of the log
        await world.eu.invalidate(scope=digest(f"scope {number}"))
    await world.eu.invalidate(scope=SCOPE)

    async with running_cache(world.us_link.url, world.us_redis.url, "us", config=CONFIG):
        # From the first reply on: cut off, or caught up; never the old answer.
        replies: list[CacheReply] = []
        async with asyncio.timeout(PATIENCE_S):
            while not (replies and is_absent(replies[-1])):
                replies.append(await world.us.look_up(digest("q"), scope=SCOPE))
        await world.us.fill(digest("in flight"), scope=SCOPE, generation=captured)
        await world.us.stored(digest("last"), scope=SCOPE)

        assert not any(is_hit(reply) for reply in replies)
        assert {reply.reason for reply in replies if isinstance(reply, CacheMiss)} <= {"cut_off", "absent"}
        assert is_absent(await world.us.look_up(digest("in flight"), scope=SCOPE))
        assert is_hit(await world.us.look_up(digest("elsewhere"), scope=OTHER_SCOPE))


async def test_region_whose_bus_was_cut_catches_up_before_it_serves(world: World) -> None:
    config = msgspec.structs.replace(CONFIG, max_staleness_s=0.3)
    async with world.running_us(config):
        await world.us.stored(digest("q"), scope=SCOPE)
        await world.us_link.cut()
        cut_s = time.monotonic()
        await world.eu.invalidate(scope=SCOPE)
        while time.monotonic() < cut_s + 2 * config.max_staleness_s:
            await world.eu.look_up(digest("q"))
        await world.us_link.mend()

        replies: list[CacheReply] = []
        async with asyncio.timeout(PATIENCE_S):
            while not (replies and is_absent(replies[-1])):
                replies.append(await _soon(lambda: world.us.look_up(digest("q"), scope=SCOPE)))

        assert not any(is_hit(reply) for reply in replies)


async def test_region_without_contact_to_the_log_serves_misses_and_says_so(
    redis_server: Server, tenant: str
) -> None:
    with nats_server(jetstream=False) as server:
        bus = await Bus.connect(server.url, name="test")
        client = Client(bus, "eu", tenant)
        async with running_cache(server, redis_server.url, "eu", config=CONFIG) as runtime:
            reply = await client.look_up(digest("q"))
            invalidated = await client.invalidate()

            assert isinstance(reply, CacheMiss)
            assert (reply.reason, reply.generation) == ("cut_off", b"")
            assert "other regions were not told" in invalidated.error
            assert "log of invalidations" in runtime.detail
        await bus.close(2)


async def test_region_whose_store_was_flushed_reads_the_log_again(world: World) -> None:
    async with world.running_us(), Redis.from_url(world.us_redis.url) as redis:
        captured = await world.eu.generation(digest("old"), scope=SCOPE)
        await world.eu.invalidate(scope=SCOPE)
        await until(world.us, "any", SCOPE, lambda reply: position(reply) >= 1)
        await redis.flushall()

        await world.send_replica("old", captured)  # before the log is read again
        async with asyncio.timeout(PATIENCE_S):
            while await redis.hget("sub100:cache:log:v2", "position") != b"1":
                pass
        await world.send_replica("old", captured)
        await world.eu.stored(digest("new"), scope=SCOPE)
        await until(world.us, "new", SCOPE, is_hit)

        assert is_absent(await world.us.look_up(digest("old"), scope=SCOPE))


async def test_region_that_missed_a_part_of_the_log_reads_nothing_of_what_it_kept(
    world: World, own_nats_server: Server
) -> None:
    async with world.running_us():
        await world.us.stored(digest("q"), scope=SCOPE)
    await world.eu.invalidate(scope=OTHER_SCOPE)
    await world.eu.invalidate(scope=OTHER_SCOPE)
    await _purge(own_nats_server)

    async with world.running_us():
        assert is_absent(await world.us.look_up(digest("q"), scope=SCOPE))
        assert not is_hit(await world.us.look_up(digest("q"), scope=SCOPE))
        await world.us.stored(digest("q"), scope=SCOPE)


async def test_log_outlives_its_server_and_regions_find_it_again(
    world: World, own_nats_server: Server
) -> None:
    async with world.running_us():
        await world.us.stored(digest("q"), scope=SCOPE)
        reconnected = asyncio.Event()
        world.bus.on_state(lambda connected: reconnected.set() if connected else None)
        own_nats_server.kill()
        own_nats_server.start()
        await asyncio.wait_for(reconnected.wait(), PATIENCE_S)
        async with asyncio.timeout(PATIENCE_S):
            while (await _soon(lambda: world.eu.invalidate(scope=SCOPE))).error:
                pass
            while not is_absent(await _soon(lambda: world.us.look_up(digest("q"), scope=SCOPE))):
                pass


async def _soon(ask: Callable[[], Awaitable[T]]) -> T:
    """The answer as soon as somebody listens again."""
    while True:
        try:
            return await ask()
        except (NoResponders, BusUnavailable):
            await asyncio.sleep(0.01)


async def _purge(server: Server) -> None:
    client = Nats()
    await client.connect(server.url)
    await client.jetstream().purge_stream("sub100_cache", seq=2)
    await client.close()

"""Two regions, each with its own Redis: what they share, and that nothing old comes back to either."""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import msgspec
import pytest
from nats.aio.client import Client as Nats
from redis.asyncio import Redis
from tests.integration.bus_link import Link, linked
from tests.integration.cache_service import ANSWER, Client, running_cache
from tests.patience import PATIENCE_S
from tests.servers import Server, nats_server

from sub100_cache.config import CacheConfig
from sub100_cache.store.entries import tenant_pattern
from sub100_cache.store.generations import Token, unpack
from sub100_cache.tenants import TenantRules
from sub100_proto import codec, subjects
from sub100_proto.cache import (
    CacheAlias,
    CacheAliasReplica,
    CacheFill,
    CacheHit,
    CacheMiss,
    CacheReplica,
    CacheReply,
)
from sub100_shared.bus import Bus, BusUnavailable, Incoming, NoResponders

SCOPE, OTHER_SCOPE = (hashlib.sha256(name).digest() for name in (b"a scope", b"another scope"))
CONFIG = CacheConfig(
    log="jetstream", max_lookup_ms=5_000, probe_interval_s=0.05, max_staleness_s=2, counts_interval_s=0.05
)

T = TypeVar("T")


def digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def is_hit(reply: CacheReply) -> bool:
    return isinstance(reply, CacheHit)


def is_absent(reply: CacheReply) -> bool:
    return isinstance(reply, CacheMiss) and reply.reason == "absent"


async def until(client: Client, name: str, scope: bytes, is_so: Callable[[CacheReply], bool]) -> CacheReply:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so(reply := await client.look_up(digest(name), scope=scope)):
            pass
    return reply


class World:
    """``eu`` and ``us`` as their clients see them; ``us_link`` is the way of the service in us to the bus."""

    def __init__(self, bus: Bus, tenant: str, us_link: Link, us_redis: Server) -> None:
        self.bus = bus
        self.eu = Client(bus, "eu", tenant)
        self.us = Client(bus, "us", tenant)
        self.us_link = us_link
        self.us_redis = us_redis
        self.tenant = tenant

    @contextlib.asynccontextmanager
    async def running_us(self, config: CacheConfig = CONFIG) -> AsyncIterator[None]:
        rules = {self.tenant: TenantRules(regions=frozenset({"eu", "us"}))}
        async with running_cache(self.us_link.url, self.us_redis.url, "us", config=config, rules=rules):
            await until(self.us, "in contact", b"", is_absent)
            yield

    async def send_replica(
        self, name: str, generation: bytes, *, origin: str = "eu", age_s: float = 0.0, tenant: str = ""
    ) -> None:
        fill = CacheFill(
            request_id="r",
            tenant=tenant or self.tenant,
            digest=digest(name),
            answer=ANSWER,
            ttl_s=60,
            scope=SCOPE,
            generation=generation,
        )
        replica = CacheReplica(origin=origin, stored_unix_s=time.time() - age_s, fill=fill)
        await self.bus.publish(subjects.cache_replica("us"), codec.encode(replica))

    def alias(self, name: str, target: str, generation: bytes, *, tenant: str = "") -> CacheAlias:
        return CacheAlias(
            tenant=tenant or self.tenant,
            digest=digest(name),
            target=digest(target),
            generation=generation,
            scope=SCOPE,
        )

    async def send_alias(self, alias: CacheAlias, *, origin: str = "eu", age_s: float = 0.0) -> None:
        replica = CacheAliasReplica(origin=origin, judged_unix_s=time.time() - age_s, alias=alias)
        await self.bus.publish(subjects.cache_replica("us"), codec.encode(replica))


@pytest.fixture
async def world(
    own_nats_server: Server, redis_server: Server, own_redis_server: Server, tenant: str
) -> AsyncIterator[World]:
    rules = {tenant: TenantRules(regions=frozenset({"eu", "us"}))}
    bus = await Bus.connect(own_nats_server.url, name="test")
    async with (
        linked(own_nats_server) as link,
        running_cache(own_nats_server, redis_server.url, "eu", config=CONFIG, rules=rules),
    ):
        world = World(bus, tenant, link, own_redis_server)
        await until(world.eu, "in contact", b"", is_absent)
        yield world
    await bus.close(2)


async def test_fill_reaches_the_other_region_once_and_is_not_sent_on(world: World) -> None:
    sent: list[Incoming] = []
    for region in ("eu", "us"):
        await world.bus.listen(subjects.cache_replica(region), sent.append)
    async with world.running_us():
        await world.eu.fill(digest("q"), scope=SCOPE)
        hit = await until(world.us, "q", SCOPE, is_hit)
        await world.us.fill(digest("back"), scope=SCOPE)
        await until(world.eu, "back", SCOPE, is_hit)

    assert isinstance(hit, CacheHit)
    assert hit.answer == ANSWER
    assert [msg.subject for msg in sent] == [subjects.cache_replica("us"), subjects.cache_replica("eu")]


async def test_answers_of_a_tenant_stay_in_their_region_unless_it_says_otherwise(world: World) -> None:
    private_eu, private_us = (Client(world.bus, region, f"{world.tenant}-private") for region in ("eu", "us"))
    async with world.running_us():
        generation = await private_us.generation(digest("forged"), scope=SCOPE)
        await private_eu.stored(digest("q"), scope=SCOPE)
        await world.send_replica("forged", generation, tenant=private_us.tenant)
        await world.eu.stored(digest("shared"), scope=SCOPE)
        await until(world.us, "shared", SCOPE, is_hit)

        assert is_absent(await private_us.look_up(digest("q"), scope=SCOPE))
        assert is_absent(await private_us.look_up(digest("forged"), scope=SCOPE))


async def test_invalidation_in_one_region_holds_in_the_other(world: World) -> None:
    async with world.running_us():
        for name, scope in (("q", SCOPE), ("elsewhere", OTHER_SCOPE)):
            await world.eu.stored(digest(name), scope=scope)
            await until(world.us, name, scope, is_hit)

        assert not (await world.eu.invalidate(scope=SCOPE)).error

        await until(world.us, "q", SCOPE, is_absent)
        assert is_hit(await world.us.look_up(digest("elsewhere"), scope=OTHER_SCOPE))
        await world.us.stored(digest("q"), scope=SCOPE)


async def test_erasure_in_one_region_removes_the_bytes_in_the_other(world: World) -> None:
    async with world.running_us(), Redis.from_url(world.us_redis.url) as redis:
        for number in range(20):
            await world.eu.stored(digest(f"q{number}"), scope=SCOPE)
        await until(world.us, "q19", SCOPE, is_hit)

        erased = await world.eu.invalidate(erase=True)

        assert (erased.error, erased.num_erased, erased.num_left) == ("", 20, 0)
        async with asyncio.timeout(PATIENCE_S):
            while [key async for key in redis.scan_iter(match=tenant_pattern(world.tenant))]:
                pass
        proof = await world.us.invalidate(erase=True)
        assert (proof.num_erased, proof.num_left) == (0, 0)


async def test_replica_that_an_invalidation_overtook_is_dropped(world: World) -> None:
    async with world.running_us():
        captured = await world.eu.generation(digest("old"), scope=SCOPE)
        await world.us.stored(digest("known"), scope=SCOPE)
        await world.eu.invalidate(scope=SCOPE)
        await until(world.us, "known", SCOPE, is_absent)
        current = await until(world.eu, "old", SCOPE, lambda reply: _position(reply) >= 1)

        await world.send_replica("old", captured)
        await world.send_replica("without", b"")
        await world.send_replica("new", current.generation)
        await until(world.us, "new", SCOPE, is_hit)

        assert is_absent(await world.us.look_up(digest("old"), scope=SCOPE))
        assert is_absent(await world.us.look_up(digest("without"), scope=SCOPE))


async def test_replica_that_is_late_or_ones_own_is_dropped(world: World) -> None:
    async with world.running_us():
        generation = await world.eu.generation(digest("late"), scope=SCOPE)
        await world.send_replica("late", generation, age_s=CONFIG.max_replica_age_s + 1)
        await world.send_replica("own", generation, origin="us")
        await world.send_replica("stranger", generation, origin="mars")
        await world.send_replica("good", generation, age_s=5)
        hit = await until(world.us, "good", SCOPE, is_hit)

        assert isinstance(hit, CacheHit)
        assert 5 <= hit.age_s < 5 + PATIENCE_S
        for name in ("late", "own", "stranger"):
            assert is_absent(await world.us.look_up(digest(name), scope=SCOPE)), name


async def test_replica_does_not_replace_the_regions_own_answer(world: World) -> None:
    async with world.running_us():
        own = msgspec.structs.replace(ANSWER, pieces=("own",))
        await world.us.stored(digest("q"), own, scope=SCOPE)
        generation = await world.eu.generation(digest("q"), scope=SCOPE)
        await world.send_replica("q", generation)
        await world.send_replica("next", generation)
        await until(world.us, "next", SCOPE, is_hit)

        hit = await world.us.look_up(digest("q"), scope=SCOPE)
        assert isinstance(hit, CacheHit)
        assert hit.answer == own


async def test_alias_reaches_the_other_region_once_and_is_not_sent_on(world: World) -> None:
    sent: list[Incoming] = []
    for region in ("eu", "us"):
        await world.bus.listen(subjects.cache_replica(region), sent.append)
    async with world.running_us():
        await world.eu.fill(digest("q"), scope=SCOPE)
        await until(world.us, "q", SCOPE, is_hit)
        await world.eu.write(
            world.alias("asked", "q", await world.eu.generation(digest("asked"), scope=SCOPE))
        )
        hit = await until(world.us, "asked", SCOPE, is_hit)
        back = world.alias("asked in us", "q", await world.us.generation(digest("back"), scope=SCOPE))
        await world.us.write(back)
        await until(world.eu, "asked in us", SCOPE, is_hit)

    assert isinstance(hit, CacheHit)
    assert (hit.tier, hit.answer) == ("exact", ANSWER)
    messages = [(msg.subject, codec.decode_cache_replica(msg.data)) for msg in sent]
    assert [(subject, type(message)) for subject, message in messages] == [
        (subjects.cache_replica("us"), CacheReplica),
        (subjects.cache_replica("us"), CacheAliasReplica),
        (subjects.cache_replica("eu"), CacheAliasReplica),
    ]


async def test_alias_of_a_tenant_that_shares_nothing_stays_in_its_region(world: World) -> None:
    private_eu, private_us = (Client(world.bus, region, f"{world.tenant}-private") for region in ("eu", "us"))
    tenant = private_eu.tenant
    sent: list[Incoming] = []
    await world.bus.listen(subjects.cache_replica("us"), sent.append)
    async with world.running_us():
        for client in (private_eu, private_us):
            await client.stored(digest("q"), scope=SCOPE)
        generation = await private_eu.generation(digest("asked"), scope=SCOPE)
        await private_eu.write(world.alias("asked", "q", generation, tenant=tenant))
        await until(private_eu, "asked", SCOPE, is_hit)
        assert sent == []
        generation = await private_us.generation(digest("forged"), scope=SCOPE)
        await world.send_alias(world.alias("forged", "q", generation, tenant=tenant))
        await world.eu.stored(digest("shared"), scope=SCOPE)
        await until(world.us, "shared", SCOPE, is_hit)

        for name in ("asked", "forged"):
            assert is_absent(await private_us.look_up(digest(name), scope=SCOPE)), name


async def test_alias_that_is_late_overtaken_ones_own_or_without_its_target_is_dropped(world: World) -> None:
    async with world.running_us():
        captured = await world.eu.generation(digest("old"), scope=SCOPE)
        await world.us.stored(digest("known"), scope=SCOPE)
        await world.eu.invalidate(scope=SCOPE)
        await until(world.us, "known", SCOPE, is_absent)
        await world.us.stored(digest("q"), scope=SCOPE)
        own = msgspec.structs.replace(ANSWER, pieces=("own",))
        await world.us.stored(digest("answered"), own, scope=SCOPE)
        current = (await until(world.eu, "x", SCOPE, lambda reply: _position(reply) >= 1)).generation

        await world.send_alias(world.alias("overtaken", "q", captured))
        await world.send_alias(world.alias("without", "q", b""))
        await world.send_alias(world.alias("late", "q", current), age_s=CONFIG.max_replica_age_s + 1)
        await world.send_alias(world.alias("own", "q", current), origin="us")
        await world.send_alias(world.alias("stranger", "q", current), origin="mars")
        await world.send_alias(world.alias("dangling", "nothing", current))
        await world.send_alias(world.alias("answered", "q", current))
        await world.send_alias(world.alias("good", "q", current), age_s=5)
        await until(world.us, "good", SCOPE, is_hit)

        for name in ("overtaken", "without", "late", "own", "stranger", "dangling"):
            assert is_absent(await world.us.look_up(digest(name), scope=SCOPE)), name
        hit = await world.us.look_up(digest("answered"), scope=SCOPE)
        assert isinstance(hit, CacheHit)
        assert hit.answer == own


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
        await until(world.us, "any", SCOPE, lambda reply: _position(reply) >= 1)
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


def _position(reply: CacheReply) -> int:
    return (unpack(reply.generation) or Token(0)).place.position


async def _purge(server: Server) -> None:
    client = Nats()
    await client.connect(server.url)
    await client.jetstream().purge_stream("sub100_cache", seq=2)
    await client.close()

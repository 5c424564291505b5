"""What two regions share: fills, aliases, invalidations; and what never leaves one."""

import asyncio

import msgspec
from redis.asyncio import Redis
from tests.integration.cache_service import ANSWER, Client
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

from sub100_cache.store.entries import tenant_pattern
from sub100_proto import codec, subjects
from sub100_proto.cache import (
    CacheAliasReplica,
    CacheHit,
    CacheReplica,
)
from sub100_shared.bus import Incoming


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
        current = await until(world.eu, "old", SCOPE, lambda reply: position(reply) >= 1)

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
        current = (await until(world.eu, "x", SCOPE, lambda reply: position(reply) >= 1)).generation

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

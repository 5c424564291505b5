"""Invalidation: what it concerns is unreadable at once, and nothing on its way brings it back."""

import asyncio
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from tests.integration.cache_service import Client, running_cache
from tests.servers import Server

from sub100_cache.store.commands import open_commands
from sub100_cache.store.entries import entry_key, tenant_pattern
from sub100_cache.store.generations import Generations, Question
from sub100_cache.store.log_place import Place
from sub100_proto.cache import CacheAlias, CacheHit, CacheMiss
from sub100_shared.bus import Bus

SCOPE, OTHER_SCOPE = (hashlib.sha256(name).digest() for name in (b"a scope", b"another scope"))
LAST = hashlib.sha256(b"the last").digest()


def digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


@pytest.fixture
async def client(
    nats_server: Server, redis_server: Server, bus: Bus, region: str, tenant: str
) -> AsyncIterator[Client]:
    async with running_cache(nats_server, redis_server.url, region):
        yield Client(bus, region, tenant)


async def is_hit(client: Client, name: str, scope: bytes = b"", revision: str = "") -> bool:
    return isinstance(await client.look_up(digest(name), scope=scope, revision=revision), CacheHit)


async def settle(client: Client) -> None:
    """What was sent before has been handled: one connection, and messages of it start in order."""
    await client.stored(LAST)


async def store_all(client: Client) -> list[tuple[str, bytes, str]]:
    kinds = [(f"{len(s)}{s[:1]!r}{r}", s, r) for s in (b"", SCOPE, OTHER_SCOPE) for r in ("", "r1", "r2")]
    for name, scope, revision in kinds:
        await client.stored(digest(name), scope=scope, revision=revision)
    return kinds


@pytest.mark.parametrize("scope", [b"", SCOPE])
@pytest.mark.parametrize("revision", ["", "r1"])
@pytest.mark.parametrize("is_by_age", [False, True])
async def test_invalidation_hits_exactly_what_matches(
    client: Client, scope: bytes, revision: str, is_by_age: bool
) -> None:
    kinds = await store_all(client)
    before_s = time.time() if is_by_age else 0.0
    fresh = ("stored later", scope, revision)
    if is_by_age:
        await client.stored(digest(fresh[0]), scope=scope, revision=revision)

    done = await client.invalidate(scope=scope, revision=revision, before_unix_s=before_s)

    assert not done.error
    for name, its_scope, its_revision in kinds:
        is_concerned = scope in (b"", its_scope) and revision in ("", its_revision)
        assert await is_hit(client, name, its_scope, its_revision) != is_concerned, name
    assert await is_hit(client, *fresh) == is_by_age


async def test_invalidation_leaves_other_tenants_alone(client: Client, bus: Bus, region: str) -> None:
    other = Client(bus, region, f"{client.tenant}x")
    await client.stored(digest("q"))
    await other.stored(digest("q"))

    await client.invalidate()

    assert not await is_hit(client, "q")
    assert await is_hit(other, "q")


async def test_lookup_that_names_no_scope_sees_the_invalidation_of_the_entrys_own(client: Client) -> None:
    await client.stored(digest("q"), scope=SCOPE, revision="r1")
    assert await is_hit(client, "q")

    await client.invalidate(revision="r1")

    assert not await is_hit(client, "q")


async def test_fill_in_flight_during_an_invalidation_is_dropped(client: Client) -> None:
    captured = await client.generation(digest("q"), scope=SCOPE)
    elsewhere = await client.generation(digest("elsewhere"), scope=OTHER_SCOPE)
    await client.invalidate(scope=SCOPE)

    await client.fill(digest("q"), scope=SCOPE, generation=captured)
    await client.fill(digest("elsewhere"), scope=OTHER_SCOPE, generation=elsewhere)
    await settle(client)

    assert not await is_hit(client, "q", SCOPE)
    assert await is_hit(client, "elsewhere", OTHER_SCOPE)
    await client.stored(digest("q"), scope=SCOPE)


@pytest.mark.parametrize("generation", [b"", b"nonsense", bytes(16), b"\xff" * 16])
async def test_fill_without_a_generation_that_was_given_is_dropped(client: Client, generation: bytes) -> None:
    await client.generation(digest("q"))

    await client.fill(digest("q"), generation=generation)
    await settle(client)

    assert not await is_hit(client, "q")


async def test_alias_in_flight_during_an_invalidation_is_dropped(client: Client) -> None:
    captured = await client.generation(digest("asked"), scope=SCOPE)
    await client.invalidate(scope=SCOPE)
    await client.stored(digest("q"), scope=SCOPE)

    for name, generation in (("asked", captured), ("now", await client.generation(LAST, scope=SCOPE))):
        alias = CacheAlias(
            tenant=client.tenant,
            digest=digest(name),
            target=digest("q"),
            generation=generation,
            scope=SCOPE,
        )
        await client.write(alias)
    await client.reply_until(digest("now"), lambda reply: isinstance(reply, CacheHit))

    assert not await is_hit(client, "asked", SCOPE)


async def test_alias_dies_with_the_generation_of_its_entry(client: Client) -> None:
    await client.stored(digest("q"), scope=SCOPE)
    generation = await client.generation(digest("asked"), scope=SCOPE)
    await client.write(
        CacheAlias(
            tenant=client.tenant,
            digest=digest("asked"),
            target=digest("q"),
            generation=generation,
            scope=SCOPE,
        )
    )
    await client.reply_until(digest("asked"), lambda reply: isinstance(reply, CacheHit))

    await client.invalidate(before_unix_s=time.time() + 1)

    assert not await is_hit(client, "asked", SCOPE)


async def test_flushed_redis_brings_no_old_generation_back(
    nats_server: Server, own_redis_server: Server, bus: Bus, region: str, tenant: str
) -> None:
    client = Client(bus, region, tenant)
    async with (
        running_cache(nats_server, own_redis_server.url, region),
        Redis.from_url(own_redis_server.url) as redis,
    ):
        first = await client.generation(digest("q"), scope=SCOPE)
        await client.invalidate(scope=SCOPE)
        await client.invalidate()
        await redis.flushall()

        await client.fill(digest("q"), scope=SCOPE, generation=first)  # before the new record is made
        second = await client.generation(digest("other"), scope=SCOPE)
        await client.fill(digest("q"), scope=SCOPE, generation=first)  # and after
        await settle(client)

        assert second != first
        assert not await is_hit(client, "q", SCOPE)


async def test_record_of_too_many_marks_becomes_one_of_the_whole_tenant(
    client: Client, redis: Redis, redis_server: Server
) -> None:
    await client.stored(digest("q"), scope=SCOPE)
    future_s = time.time() + 3600
    commands = open_commands(redis_server.url, max_connections=2)
    await commands.probe()
    generations = Generations(commands, 86_400, max_marks=6)
    await generations.invalidate(Question(client.tenant, OTHER_SCOPE), before_s=future_s)
    assert await is_hit(client, "q", SCOPE)

    for number in range(4):
        target = Question(client.tenant, digest(f"scope {number}"))
        await generations.invalidate(target, place=Place(7, number + 1), is_replay=True)
    standing = await generations.standing(Question(client.tenant, digest("any")), 1)
    await commands.close()

    assert not await is_hit(client, "q", SCOPE)
    assert standing.before_s == pytest.approx(future_s)


async def test_invalidation_of_one_place_in_the_log_happens_once(
    client: Client, redis: Redis, redis_server: Server
) -> None:
    commands = open_commands(redis_server.url, max_connections=2)
    await commands.probe()
    generations, question = Generations(commands, 86_400), Question(client.tenant, SCOPE)
    numbers = []
    for position in (5, 5, 4, 6):
        await generations.invalidate(question, place=Place(7, position), is_replay=True)
        numbers.append((await generations.standing(question, 1)).number)
    await commands.close()

    assert numbers[0] == numbers[1] == numbers[2] < numbers[3]


@pytest.mark.parametrize("marks", [0, 8])
async def test_invalidation_in_a_log_made_anew_holds_over_what_the_old_one_told(
    client: Client, redis: Redis, redis_server: Server, marks: int
) -> None:
    """Positions begin at 1 again: those of the old log say nothing about them."""
    commands = open_commands(redis_server.url, max_connections=2)
    await commands.probe()
    generations, tenant = Generations(commands, 86_400, max_marks=6), Question(client.tenant)
    await generations.establish(tenant, Place(7, 5000), 1)
    for number in range(marks):  # so many that they become one
        target = Question(client.tenant, digest(f"scope {number}"))
        await generations.invalidate(target, place=Place(7, 5001 + number), is_replay=True)
    numbers = [(await generations.standing(tenant, 1)).number]
    for position in (4, 4):
        await generations.invalidate(tenant, place=Place(8, position), is_replay=True)
        numbers.append((await generations.standing(tenant, 1)).number)
    admitted = [
        await generations.admit(tenant, Place(identity, position), Place(8, 9))
        for identity, position in ((8, 3), (8, 4), (7, 9000))
    ]
    await commands.close()

    assert numbers[0] < numbers[1] == numbers[2]
    assert admitted == [0, numbers[2], 0]


async def test_invalidation_by_command_holds_whatever_the_record_knows_of_the_log(
    client: Client, redis: Redis, redis_server: Server
) -> None:
    """Its place may be named in a log that the replica still takes for the old one."""
    commands = open_commands(redis_server.url, max_connections=2)
    await commands.probe()
    generations, tenant = Generations(commands, 86_400), Question(client.tenant)
    before = await generations.establish(tenant, Place(7, 5000), 1)
    await generations.invalidate(tenant, place=Place(7, 4))
    after = await generations.standing(tenant, 1)
    await commands.close()

    assert before.number < after.number


async def test_invalidation_tells_when_the_store_is_away(
    nats_server: Server, own_redis_server: Server, bus: Bus, region: str, tenant: str
) -> None:
    own_redis_server.kill()
    async with running_cache(nats_server, own_redis_server.url, region):
        done = await Client(bus, region, tenant).invalidate()

    assert "unavailable" in done.error


async def test_invalidation_tells_whether_the_tenant_is_known(client: Client, bus: Bus, region: str) -> None:
    await client.stored(digest("q"))
    stranger = Client(bus, region, f"{client.tenant}-typo")

    known = [(await each.invalidate()).is_known for each in (client, stranger, stranger)]

    assert known == [True, False, False]


async def test_invalidation_refuses_a_scope_of_the_wrong_length(client: Client) -> None:
    assert (await client.invalidate(scope=b"short")).error


async def test_erasure_removes_every_byte_of_the_tenant_and_counts(
    client: Client, redis: Redis, bus: Bus, region: str
) -> None:
    other = Client(bus, region, f"{client.tenant}x")
    await other.stored(digest("q"))
    kinds = await store_all(client)
    captured = [await client.generation(digest(name), scope=s, revision=r) for name, s, r in kinds]
    await redis.set(entry_key(client.tenant, bytes(32)), b"damaged")
    await redis.hset(f"sub100:cache:vec:v2:old-3:{{{client.tenant}}}:{'0' * 64}", "v", "x")

    async def refill() -> None:
        for (name, scope, revision), generation in zip(kinds, captured, strict=True):
            await client.fill(digest(name), scope=scope, revision=revision, generation=generation)

    erased, *_ = await asyncio.gather(client.invalidate(erase=True), refill(), refill())
    await refill()
    again = await client.invalidate(erase=True)

    assert (erased.error, erased.num_left) == ("", 0)
    assert erased.num_erased == len(kinds) + 2
    assert (again.num_erased, again.num_left) == (0, 0)
    assert [key async for key in redis.scan_iter(match=tenant_pattern(client.tenant))] == []
    assert await is_hit(other, "q")


async def test_erasure_by_age_or_scope_keeps_the_rest(client: Client, redis: Redis) -> None:
    await client.stored(digest("old"), scope=SCOPE)
    before_s = time.time()
    await client.stored(digest("new"), scope=SCOPE)
    await client.stored(digest("elsewhere"), scope=OTHER_SCOPE)

    by_age = await client.invalidate(before_unix_s=before_s, erase=True)
    assert (by_age.num_erased, by_age.num_left) == (1, 0)
    assert await is_hit(client, "new", SCOPE)

    by_scope = await client.invalidate(scope=OTHER_SCOPE, erase=True)
    assert (by_scope.num_erased, by_scope.num_left) == (1, 0)
    assert [key async for key in redis.scan_iter(match=tenant_pattern(client.tenant))] == [
        entry_key(client.tenant, digest("new")).encode()
    ]


async def test_erasure_takes_an_older_versions_answer_beside_a_kept_one(client: Client, redis: Redis) -> None:
    await client.stored(digest("q"), scope=SCOPE)
    older = f"sub100:cache:v3:{{{client.tenant}}}:{digest('q').hex()}"
    await redis.set(older, "an answer of an older version", ex=60)

    done = await client.invalidate(scope=OTHER_SCOPE, erase=True)

    assert (done.error, done.num_erased, done.num_left) == ("", 1, 0)
    assert not await redis.exists(older)
    assert await is_hit(client, "q", SCOPE)


async def test_tenant_pattern_takes_a_name_literally(client: Client, redis: Redis) -> None:
    await client.stored(digest("q"))

    stranger = await client.invalidate(tenant="*", erase=True)

    assert (stranger.error, stranger.num_erased) == ("", 0)
    assert isinstance(await client.look_up(digest("q")), CacheHit)
    assert isinstance(await client.look_up(digest("q"), tenant="*"), CacheMiss)


async def test_operators_command_erases_over_the_bus(client: Client, nats_server: Server) -> None:
    await client.stored(digest("q"))
    environment = os.environ | {"SUB100_NATS_URL": nats_server.url, "SUB100_REGION": client.region}

    command = [sys.executable, "-m", "sub100_cache.admin", "erase", "--tenant", client.tenant]
    done = await asyncio.to_thread(
        subprocess.run, command, env=environment, capture_output=True, timeout=30, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, b"invalidated num_erased=1 num_left=0\n", b"")
    assert not await is_hit(client, "q")

"""What is known of a tenant, spoiled in Redis: begun anew at the next use, and erasure never fails on it."""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from redis.asyncio import Redis
from tests.integration.cache_service import Client, running_cache
from tests.servers import Server

from sub100_cache.config import CacheConfig
from sub100_cache.store.commands import open_commands
from sub100_cache.store.entries import counts_key, generations_key, ledger_keys, tenant_pattern
from sub100_cache.store.generations import Generations, Question
from sub100_cache.store.log_place import Place
from sub100_proto.cache import CacheMiss
from sub100_shared.bus import Bus

SCOPE = hashlib.sha256(b"a scope").digest()
KEPT, NEXT, LATER = (hashlib.sha256(name).digest() for name in (b"kept", b"next", b"later"))

Spoil = Callable[[Any, str], Awaitable[None]]


async def generations_type(redis: Any, tenant: str) -> None:
    await redis.set(generations_key(tenant), "junk", ex=600)


async def generations_tenant(redis: Any, tenant: str) -> None:
    await redis.hset(generations_key(tenant), "gt", "junk")


async def generations_scope(redis: Any, tenant: str) -> None:
    await redis.hset(generations_key(tenant), b"gs" + SCOPE, b"\xff\x00")


async def generations_before(redis: Any, tenant: str) -> None:
    await redis.hset(generations_key(tenant), "bt", "nan")


async def generations_last(redis: Any, tenant: str) -> None:
    await redis.hset(generations_key(tenant), mapping={"n": "junk", "lt": "junk"})


async def expiry_type(redis: Any, tenant: str) -> None:
    await redis.set(ledger_keys(tenant)[0], "junk", ex=600)


async def expiry_score(redis: Any, tenant: str) -> None:
    await redis.zadd(ledger_keys(tenant)[0], {"junk": float("inf")})


async def sizes_type(redis: Any, tenant: str) -> None:
    await redis.set(ledger_keys(tenant)[1], "junk", ex=600)


async def sizes_sum(redis: Any, tenant: str) -> None:
    await redis.hset(ledger_keys(tenant)[1], "#", "junk")


async def sizes_field(redis: Any, tenant: str) -> None:
    await redis.hset(ledger_keys(tenant)[1], mapping={KEPT.hex(): "junk", b"\xff\x00": "junk"})


async def counts_type(redis: Any, tenant: str) -> None:
    await redis.set(counts_key(tenant), "junk", ex=600)


async def counts_field(redis: Any, tenant: str) -> None:
    await redis.hset(counts_key(tenant), "num_lookups", "junk")


async def everything(redis: Any, tenant: str) -> None:
    for spoil in (generations_type, expiry_type, sizes_type, counts_type):
        await spoil(redis, tenant)


GENERATIONS = [generations_type, generations_tenant, generations_scope, generations_before]
QUOTA = [expiry_type, expiry_score, sizes_type, sizes_sum, sizes_field]
ALL = [*GENERATIONS, generations_last, *QUOTA, counts_type, counts_field, everything]


@pytest.fixture
async def client(
    nats_server: Server, redis_server: Server, bus: Bus, region: str, tenant: str
) -> AsyncIterator[Client]:
    config = CacheConfig(max_lookup_ms=5_000, counts_interval_s=0.05, ledger_interval_s=3600)
    async with running_cache(nats_server, redis_server.url, region, config=config):
        yield Client(bus, region, tenant)


async def keys_of(redis: Redis, tenant: str) -> list[Any]:
    return [key async for key in redis.scan_iter(match=tenant_pattern(tenant))]


@pytest.mark.parametrize("spoil", ALL)
async def test_cache_fills_and_hits_again_after_a_record_was_spoiled(
    client: Client, redis: Redis, spoil: Spoil
) -> None:
    await client.stored(KEPT, scope=SCOPE)

    await spoil(redis, client.tenant)

    await client.stored(NEXT, scope=SCOPE)
    await client.stored(KEPT, scope=SCOPE)
    assert (await client.stats()).error == ""
    assert (await client.invalidate(erase=True)).error == ""
    await client.stored(LATER, scope=SCOPE)
    assert (await client.stats()).num_entries == 1


@pytest.mark.parametrize("spoil", ALL)
@pytest.mark.parametrize("scope", [b"", SCOPE], ids=["tenant", "scope"])
async def test_erasure_succeeds_at_once_on_a_spoiled_record(
    client: Client, redis: Redis, spoil: Spoil, scope: bytes
) -> None:
    await client.stored(KEPT, scope=SCOPE)

    await spoil(redis, client.tenant)
    done = await client.invalidate(scope=scope, erase=True)

    assert (done.error, done.num_left) == ("", 0)
    assert await keys_of(redis, client.tenant) == []
    assert isinstance(await client.look_up(KEPT, scope=SCOPE), CacheMiss)


@pytest.mark.parametrize("spoil", GENERATIONS)
async def test_spoiled_generations_make_nothing_older_readable(
    client: Client, redis: Redis, spoil: Spoil
) -> None:
    await client.stored(KEPT, scope=SCOPE)
    captured = await client.generation(NEXT, scope=SCOPE)

    await spoil(redis, client.tenant)

    assert isinstance(await client.look_up(KEPT, scope=SCOPE), CacheMiss)
    await client.fill(NEXT, scope=SCOPE, generation=captured)
    await client.stored(LATER, scope=SCOPE)
    for older in (KEPT, NEXT):
        assert isinstance(await client.look_up(older, scope=SCOPE), CacheMiss)


@pytest.mark.parametrize("spoil", [*QUOTA, counts_type, counts_field])
async def test_spoiled_quota_or_counts_cost_no_hit(client: Client, redis: Redis, spoil: Spoil) -> None:
    await client.stored(KEPT, scope=SCOPE)

    await spoil(redis, client.tenant)
    await client.stored(NEXT, scope=SCOPE)

    assert not isinstance(await client.look_up(KEPT, scope=SCOPE), CacheMiss)


async def test_replica_is_not_let_in_past_a_mark_that_cannot_be_read(
    redis_server: Server, redis: Redis, tenant: str
) -> None:
    commands = open_commands(redis_server.url, max_connections=4)
    await commands.probe()
    generations, question, place = Generations(commands, 600), Question(tenant, SCOPE), Place(7, 3)
    before = await generations.admit(question, place, place)

    await redis.hset(generations_key(tenant), "lt", "junk")

    assert await generations.admit(question, place, place) == 0
    assert await generations.admit(question, place, place) > before > 0
    await commands.close()

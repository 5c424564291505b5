"""How much of a tenant is kept, and that the books are right about it."""

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest
from redis.asyncio import Redis
from tests.integration.cache_service import ANSWER, Client, running_cache
from tests.patience import PATIENCE_S
from tests.servers import Server

from sub100_cache.config import CacheConfig
from sub100_cache.store import scripts
from sub100_cache.store.commands import Commands, open_commands
from sub100_cache.store.entries import entry_key, entry_prefix, ledger_keys, tenant_pattern, vector_key
from sub100_cache.store.exact import ExactTier
from sub100_cache.store.generations import Generations, Question, Token
from sub100_cache.store.ledger import Ledger, Quota
from sub100_cache.store.log_place import Place
from sub100_cache.store.seal import Seal
from sub100_cache.store.writes import QuestionVector, Writes
from sub100_cache.tenants import TenantRules
from sub100_proto.cache import CacheAlias, CacheFill, CacheHit
from sub100_shared.bus import Bus

SCOPE = hashlib.sha256(b"a scope").digest()
SPACE = "model-3"
VECTOR = QuestionVector(SPACE, b"\0" * 12)
LIMIT = 2**20


def digest(name: object) -> bytes:
    return hashlib.sha256(str(name).encode()).digest()


class Shelf:
    """One tenant's part of the store."""

    def __init__(self, commands: Commands, tenant: str, quota: Quota) -> None:
        self.quota = quota
        self.tenant = tenant
        self.redis = commands.client
        self.ledger = Ledger(commands)
        self.generations = Generations(commands, 86_400)
        exact = ExactTier(commands, self.generations, Seal())
        self.writes = Writes(commands, exact, self.generations, Seal(), lambda _: self.quota, lambda: 1e9)

    async def generation(self) -> bytes:
        return Token((await self.generations.establish(Question(self.tenant), Place(), 5)).number).packed()

    async def fill(
        self, name: object, size: int = 0, *, vector: QuestionVector | None = VECTOR, ttl_s: int = 60
    ) -> bool:
        fill = CacheFill(
            request_id="r",
            tenant=self.tenant,
            digest=digest(name),
            answer=msgspec.structs.replace(ANSWER, pieces=("x" * size,)),
            ttl_s=ttl_s,
            scope=SCOPE,
            generation=await self.generation(),
        )
        return await self.writes.fill(fill, vector, ttl_s=ttl_s, limit=LIMIT)

    async def has(self, name: object) -> bool:
        return bool(await self.redis.exists(entry_key(self.tenant, digest(name))))

    async def real_size(self) -> tuple[int, int]:
        """What is there, counted without any book."""
        num = num_bytes = 0
        async for key in self.redis.scan_iter(match=tenant_pattern(self.tenant)):
            is_entry = key.startswith(entry_prefix(self.tenant).encode())
            num += is_entry
            num_bytes += await self.redis.strlen(key) if is_entry else len(VECTOR.vector)
        return num, num_bytes


@pytest.fixture
async def shelf_of(redis_server: Server, tenant: str) -> AsyncIterator[Callable[[Quota], Shelf]]:
    commands = open_commands(redis_server.url, max_connections=4)
    await commands.probe()
    yield lambda quota: Shelf(commands, tenant, quota)
    await commands.close()


async def test_fill_over_the_entries_quota_evicts_what_ends_first(shelf_of: Callable[[Quota], Shelf]) -> None:
    shelf = shelf_of(Quota(max_entries=3, max_bytes=LIMIT))
    for name, ttl_s in (("b", 40), ("a", 30), ("d", 60), ("c", 50), ("e", 70)):
        assert await shelf.fill(name, ttl_s=ttl_s)

    assert [await shelf.has(name) for name in "abcde"] == [False, False, True, True, True]
    assert not await shelf.redis.exists(vector_key(SPACE, shelf.tenant, digest("a")))
    assert await shelf.redis.exists(vector_key(SPACE, shelf.tenant, digest("e")))
    assert await shelf.ledger.size(shelf.tenant) == await shelf.real_size()


async def test_fill_over_the_bytes_quota_evicts_as_much_as_it_needs(
    shelf_of: Callable[[Quota], Shelf],
) -> None:
    shelf = shelf_of(Quota(max_entries=100, max_bytes=4000))
    for name, ttl_s in (("a", 30), ("b", 40), ("c", 50)):
        assert await shelf.fill(name, 800, ttl_s=ttl_s)
    assert await shelf.fill("d", 2000)

    assert [await shelf.has(name) for name in "abcd"] == [False, False, True, True]
    assert not await shelf.fill("larger than all", 4000)
    assert await shelf.has("d")
    assert await shelf.ledger.size(shelf.tenant) == await shelf.real_size()


async def test_books_are_right_whatever_happens(shelf_of: Callable[[Quota], Shelf]) -> None:
    shelf = shelf_of(Quota(max_entries=12, max_bytes=6000))
    chance = random.Random(7)
    for step in range(300):
        name = chance.randrange(30)
        match chance.randrange(10):
            case 0:
                await shelf.ledger.forget(shelf.tenant, [digest(name).hex()])
            case 1:  # Redis, out of memory
                await shelf.redis.delete(entry_key(shelf.tenant, digest(name)))
                await shelf.redis.delete(vector_key(SPACE, shelf.tenant, digest(name)))
                await shelf.ledger.reconcile(shelf.tenant)
            case _:
                vector = chance.choice((None, VECTOR))
                await shelf.fill(name, chance.randrange(1500), vector=vector, ttl_s=chance.randrange(50, 99))
        num_entries, num_bytes = await shelf.ledger.size(shelf.tenant)
        assert num_entries <= 12, step
        assert num_bytes <= 6000, step
        assert (num_entries, num_bytes) == await shelf.real_size(), step


async def test_quota_that_shrank_is_kept_after_bounded_writes(shelf_of: Callable[[Quota], Shelf]) -> None:
    shelf = shelf_of(Quota(max_entries=100, max_bytes=LIMIT))
    num = 2 * scripts.MAX_EVICTIONS + 5
    for number in range(num):
        assert await shelf.fill(number)
    shelf.quota = Quota(max_entries=1, max_bytes=LIMIT)

    stored = [await shelf.fill(f"new {number}") for number in range(4)]

    assert stored == [False, False, True, True]
    assert (await shelf.ledger.size(shelf.tenant))[0] == 1


async def test_books_forget_what_has_ended(shelf_of: Callable[[Quota], Shelf]) -> None:
    shelf = shelf_of(Quota(max_entries=100, max_bytes=LIMIT))
    assert await shelf.fill("long", vector=None)
    assert await shelf.fill("short", ttl_s=1, vector=None)
    async with asyncio.timeout(PATIENCE_S):
        while await shelf.has("short"):
            pass
    assert (await shelf.ledger.size(shelf.tenant))[0] == 2

    assert await shelf.fill("next", vector=None)

    assert await shelf.ledger.size(shelf.tenant) == await shelf.real_size()
    assert (await shelf.ledger.size(shelf.tenant))[0] == 2


async def test_books_end_with_the_last_entry(shelf_of: Callable[[Quota], Shelf]) -> None:
    shelf = shelf_of(Quota(max_entries=100, max_bytes=LIMIT))
    for name, ttl_s in (("first", 5), ("last", 40), ("again", 5)):
        assert await shelf.fill(name, ttl_s=ttl_s)

    ends = [await shelf.redis.pexpiretime(key) for key in ledger_keys(shelf.tenant)]
    last = await shelf.redis.pexpiretime(entry_key(shelf.tenant, digest("last")))

    assert ends == pytest.approx([last, last], abs=2)


async def test_sum_that_is_wrong_does_not_outlive_the_entries(shelf_of: Callable[[Quota], Shelf]) -> None:
    shelf = shelf_of(Quota(max_entries=2, max_bytes=1000))
    await shelf.redis.hset(ledger_keys(shelf.tenant)[1], "#", 10**6)

    assert await shelf.fill("a")
    assert await shelf.ledger.size(shelf.tenant) == await shelf.real_size()


async def test_fill_is_dropped_while_redis_has_no_memory(own_redis_server: Server, tenant: str) -> None:
    commands = open_commands(own_redis_server.url, max_connections=4)
    await commands.probe()
    shelf = Shelf(commands, tenant, Quota(max_entries=10, max_bytes=LIMIT))
    assert await shelf.fill("before")
    await commands.client.config_set("maxmemory-policy", "noeviction")
    await commands.client.config_set("maxmemory", "1mb")

    assert not await shelf.fill("during")
    assert await shelf.has("before")

    await commands.client.config_set("maxmemory", "0")
    assert await shelf.fill("after")
    assert await shelf.ledger.size(tenant) == await shelf.real_size()
    await commands.close()


@pytest.fixture
async def client(
    nats_server: Server, redis_server: Server, bus: Bus, region: str, tenant: str
) -> AsyncIterator[Client]:
    config = CacheConfig(
        max_lookup_ms=5_000, max_tenant_entries=2, counts_interval_s=0.05, ledger_interval_s=0.05
    )
    rules = {f"{tenant}-large": TenantRules(max_entries=5)}
    async with running_cache(nats_server, redis_server.url, region, config=config, rules=rules):
        yield Client(bus, region, tenant)


@pytest.mark.parametrize(("suffix", "quota"), [("", 2), ("-large", 5)])
async def test_cache_keeps_each_tenant_within_its_own_quota(client: Client, suffix: str, quota: int) -> None:
    client.tenant += suffix

    for number in range(8):  # what ends first goes first, and two may be stored in one millisecond
        await client.stored(digest(number), ttl_s=60 + number)

    assert (await client.stats()).num_entries == quota
    assert [isinstance(await client.look_up(digest(n)), CacheHit) for n in range(8)] == [
        number >= 8 - quota for number in range(8)
    ]


async def test_cache_books_learn_of_what_redis_evicted_by_itself(
    client: Client, redis_server: Server
) -> None:
    await client.stored(digest("a"))
    async with Redis.from_url(redis_server.url) as redis:
        await redis.delete(entry_key(client.tenant, digest("a")))
        # Nobody asks: the upkeep finds it.
        async with asyncio.timeout(PATIENCE_S):
            while await redis.exists(*ledger_keys(client.tenant)):
                pass

    assert (await client.stats()).num_entries == 0


async def test_cache_counts_an_alias_as_an_entry(client: Client) -> None:
    await client.stored(digest("q"), scope=SCOPE)
    alias = CacheAlias(
        tenant=client.tenant,
        digest=digest("asked"),
        target=digest("q"),
        generation=await client.generation(digest("asked"), scope=SCOPE),
        scope=SCOPE,
    )
    await client.write(alias)
    await client.reply_until(digest("asked"), lambda reply: isinstance(reply, CacheHit))

    assert (await client.stats()).num_entries == 2

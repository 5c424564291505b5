"""What a tenant can read of its own look-ups."""

import asyncio
import hashlib

import msgspec
from redis.asyncio import Redis
from tests.integration.cache_service import Client, running_cache
from tests.integration.embedder_fake import SteeredEmbedder, bounded
from tests.patience import PATIENCE_S
from tests.servers import Server, nats_server

from sub100_cache.config import CacheConfig
from sub100_cache.guard.rules import RULES
from sub100_cache.service import MAX_INVALIDATIONS, MAX_STATS
from sub100_cache.store.entries import counts_key, ledger_keys
from sub100_proto.cache import CacheMiss, CacheObserved, CacheStats
from sub100_shared.bus import Bus
from sub100_shared.lifecycle import Runtime

DIGEST = hashlib.sha256(b"a prompt").digest()
CONFIG = CacheConfig(max_lookup_ms=5_000, counts_interval_s=60)


async def until(client: Client, **expected: int) -> None:
    """What is only published is counted a moment later."""
    async with asyncio.timeout(PATIENCE_S):
        while {name: getattr(await client.stats(), name) for name in expected} != expected:
            pass


async def test_stats_count_lookups_hits_and_shadow_hits(
    nats_server: Server, redis_server: Server, bus: Bus, region: str, tenant: str
) -> None:
    client = Client(bus, region, tenant)
    async with running_cache(nats_server, redis_server.url, region, config=CONFIG):
        assert await client.stats() == CacheStats()

        captured = await client.generation(DIGEST)
        await client.fill(DIGEST, generation=captured)
        for agreed in (True, True, False):
            await client.write(CacheObserved(tenant=tenant, tier="semantic", agreed=agreed))
        await until(client, num_lookups=1, num_shadow_hits=3, num_shadow_false=1, num_entries=1)
        await client.look_up(DIGEST)
        stats = await client.stats()

    assert (stats.num_lookups, stats.num_exact_hits, stats.num_semantic_hits) == (2, 1, 0)
    assert stats.num_bytes > 100


async def test_stats_outlive_the_service_and_end_with_an_erasure(
    nats_server: Server, redis_server: Server, bus: Bus, region: str, tenant: str
) -> None:
    client = Client(bus, region, tenant)
    async with running_cache(nats_server, redis_server.url, region, config=CONFIG):
        await client.look_up(DIGEST)
        await client.look_up(DIGEST)
    async with running_cache(nats_server, redis_server.url, region, config=CONFIG):
        await client.stored(DIGEST)
        assert (await client.stats()).num_lookups >= 4
        await client.invalidate(erase=True)
        async with Redis.from_url(redis_server.url) as redis:
            assert await redis.exists(counts_key(tenant), *ledger_keys(tenant)) == 0
        assert await client.stats() == CacheStats()


async def test_counts_cost_redis_nothing_per_lookup(
    nats_server: Server, redis_server: Server, bus: Bus, region: str, tenant: str
) -> None:
    client = Client(bus, region, tenant)
    async with (
        running_cache(nats_server, redis_server.url, region, config=CONFIG),
        Redis.from_url(redis_server.url) as redis,
    ):
        await client.look_up(DIGEST)
        before = (await redis.info("commandstats")).get("cmdstat_hincrby", {"calls": 0})["calls"]
        for _ in range(50):
            await client.look_up(DIGEST)
        after = (await redis.info("commandstats")).get("cmdstat_hincrby", {"calls": 0})["calls"]

    assert after == before


async def test_stats_tell_when_the_store_is_away(
    nats_server: Server, own_redis_server: Server, bus: Bus, region: str, tenant: str
) -> None:
    own_redis_server.kill()
    async with running_cache(nats_server, own_redis_server.url, region, config=CONFIG):
        assert "unavailable" in (await Client(bus, region, tenant).stats()).error


async def test_metrics_count_refusals_by_rule_shadow_verdicts_and_being_cut_off(
    nats_server: Server, own_redis_server: Server, bus: Bus, region: str, tenant: str
) -> None:
    client, scope = Client(bus, region, tenant), hashlib.sha256(b"a scope").digest()
    embedder = SteeredEmbedder()
    embedder.default_degrees = 10.0
    stored = "Is it safe to swim in March?"
    asked = {
        "Is it not safe to swim in March?": "negation",
        "Is it safe to swim in April?": "name",
        stored: "",
    }
    async with running_cache(
        nats_server, own_redis_server.url, region, config=CONFIG, embedder=bounded(embedder)
    ) as runtime:
        await client.stored(hashlib.sha256(stored.encode()).digest(), scope=scope, question=stored)
        for question in asked:
            reply = await client.look_up(
                hashlib.sha256(f"asked {question}".encode()).digest(), scope=scope, question=question
            )
            refused = reply.near.rule if isinstance(reply, CacheMiss) and reply.near else ""
            assert refused == asked[question]
        for agreed in (True, False, True):
            await client.write(CacheObserved(tenant=tenant, tier="semantic", agreed=agreed))
        await until(client, num_shadow_hits=3)
        values = read(runtime)

    assert {rule: num for (rule,), num in values["sub100_cache_refused"].items() if num} == {
        "negation": 1,
        "name": 1,
    }
    assert {rule for (rule,) in values["sub100_cache_refused"]} == RULES
    assert values["sub100_cache_shadow"] == {("agreed",): 2, ("differed",): 1}
    assert values["sub100_cache_cut_off"] == {(): 0}


async def test_metrics_count_lookups_that_are_cut_off(redis_server: Server, region: str, tenant: str) -> None:
    with nats_server(jetstream=False) as server:
        bus = await Bus.connect(server.url, name="test")
        config = msgspec.structs.replace(CONFIG, log="jetstream")
        async with running_cache(server, redis_server.url, region, config=config) as runtime:
            reply = await Client(bus, region, tenant).look_up(DIGEST)
            values = read(runtime)
        await bus.close(2)

    assert isinstance(reply, CacheMiss)
    assert reply.reason == "cut_off"
    assert values["sub100_cache_cut_off"] == {(): 1}


def read(runtime: Runtime) -> dict[str, dict[tuple[str, ...], float]]:
    runtime.metrics.read_states()
    return {
        family.name: {tuple(sample.labels.values()): sample.value for sample in family.samples}
        for family in runtime.metrics.families()
    }


async def test_invalidations_are_answered_while_a_tenant_asks_for_its_counts_without_end(
    nats_server: Server, own_redis_server: Server, bus: Bus, region: str, tenant: str
) -> None:
    """The store hangs, so that whatever is taken stays for a while."""
    client = Client(bus, region, tenant)
    async with running_cache(nats_server, own_redis_server.url, region, config=CONFIG):
        own_redis_server.pause()
        stats = [asyncio.create_task(client.stats()) for _ in range(3 * MAX_STATS)]
        invalidated = [asyncio.create_task(client.invalidate()) for _ in range(2 * MAX_INVALIDATIONS)]
        told = [reply.error for reply in await asyncio.gather(*stats)]
        done = [reply.error for reply in await asyncio.gather(*invalidated)]
        own_redis_server.resume()

    assert told.count("busy") == 2 * MAX_STATS
    assert sum("busy" in error for error in done) == MAX_INVALIDATIONS
    assert sum("unavailable" in error for error in done) == MAX_INVALIDATIONS


async def test_counts_cost_the_same_however_much_a_tenant_has_stored(
    nats_server: Server, redis_server: Server, bus: Bus, region: str, tenant: str
) -> None:
    client = Client(bus, region, tenant)
    async with (
        running_cache(nats_server, redis_server.url, region, config=CONFIG),
        Redis.from_url(redis_server.url) as redis,
    ):
        await client.stored(DIGEST)
        before = (await redis.info("commandstats")).get("cmdstat_hscan", {"calls": 0})["calls"]
        assert (await client.stats()).num_entries == 1
        after = (await redis.info("commandstats")).get("cmdstat_hscan", {"calls": 0})["calls"]

    assert after == before

"""What the cache keeps, for whom and for how long."""

import hashlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from redis.asyncio import Redis
from tests.integration.cache_service import ANSWER, Client, running_cache
from tests.servers import Server

from sub100_cache.config import CacheConfig
from sub100_cache.store.entries import Alias, Entry, Kept, alias_digest, encode_entry, entry_key
from sub100_cache.store.generations import unpack
from sub100_cache.store.seal import SEAL_BYTES, Seal
from sub100_proto.cache import CacheHit, CacheMiss
from sub100_shared import semconv
from sub100_shared.bus import Bus
from sub100_shared.telemetry import Telemetry, inject

DIGEST = hashlib.sha256(b"a prompt").digest()
OTHER = hashlib.sha256(b"another prompt").digest()
CHECKSUM = Seal()


def kept(tenant: str, stored_at_s: float, generation: bytes = b"", seal: Seal = CHECKSUM) -> bytes:
    token = unpack(generation)
    return encode_entry(
        Entry(
            tenant=tenant,
            digest=DIGEST,
            stored_at_s=stored_at_s,
            expires_at_s=stored_at_s + 60,
            answer=ANSWER,
            generation=token.number if token is not None else 0,
        ),
        seal,
    )


@pytest.fixture
async def client(
    nats_server: Server, redis_server: Server, bus: Bus, region: str, tenant: str
) -> AsyncIterator[Client]:
    config = CacheConfig(max_ttl_s=100, max_answer_bytes=1000, max_lookup_ms=5_000)
    async with running_cache(nats_server, redis_server.url, region, config=config):
        yield Client(bus, region, tenant)


async def test_cache_misses_what_was_never_filled(client: Client) -> None:
    reply = await client.look_up(DIGEST)

    assert isinstance(reply, CacheMiss)
    assert reply.reason == "absent"
    assert 0 < reply.spent_ms < 1000


async def test_cache_gives_back_the_very_answer_that_was_filled(client: Client) -> None:
    hit = await client.stored(DIGEST)

    assert hit.answer == ANSWER
    assert hit.tier == "exact"
    assert 0 <= hit.age_s < 10
    assert hit.spent_ms > 0


async def test_cache_hides_an_answer_from_another_tenant(client: Client) -> None:
    await client.stored(DIGEST)

    for stranger in ("somebody-else", f"{client.tenant}x", client.tenant[:-1], f"{client.tenant}:"):
        assert isinstance(await client.look_up(DIGEST, tenant=stranger), CacheMiss)
    assert isinstance(await client.look_up(OTHER), CacheMiss)


async def test_cache_keeps_tenants_apart_whose_names_hold_the_separator(client: Client) -> None:
    keys = {entry_key(tenant, digest) for tenant in ("a", "a:b", "") for digest in (DIGEST, OTHER)}

    assert len(keys) == 6


async def test_cache_caps_the_time_to_live_that_a_fill_asks_for(client: Client, redis: Redis) -> None:
    await client.stored(DIGEST, ttl_s=1_000_000)

    assert 90 < await redis.ttl(entry_key(client.tenant, DIGEST)) <= 100


async def test_cache_hit_does_not_renew_the_time_to_live(client: Client, redis: Redis) -> None:
    key = entry_key(client.tenant, DIGEST)
    value = kept(client.tenant, time.time(), await client.generation(DIGEST))
    await redis.set(key, value, px=5_000)

    assert isinstance(await client.look_up(DIGEST), CacheHit)
    assert 0 < await redis.pttl(key) <= 5_000


async def test_cache_forgets_an_answer_when_its_time_is_over(client: Client, redis: Redis) -> None:
    await client.stored(DIGEST, ttl_s=1)

    await client.reply_until(DIGEST, lambda reply: isinstance(reply, CacheMiss) and reply.reason == "absent")

    assert await redis.exists(entry_key(client.tenant, DIGEST)) == 0


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xc1",
        b"not msgpack at all",
        kept("t", 1.0)[:-3],
        kept("somebody-else", 1.0),
        msgspec.msgpack.encode([1, 2, 3]),
    ],
)
async def test_cache_deletes_an_entry_it_cannot_read(client: Client, redis: Redis, value: bytes) -> None:
    key = entry_key(client.tenant, DIGEST)
    await redis.set(key, value)

    reply = await client.look_up(DIGEST)

    assert isinstance(reply, CacheMiss)
    assert reply.reason == "unreadable"
    assert await redis.exists(key) == 0
    assert isinstance(await client.stored(DIGEST), CacheHit)


@pytest.mark.parametrize(
    "value",
    [
        Alias(tenant="", digest=b"", target=b"short", generation=1),
        Alias(tenant="", digest=b"", target=OTHER, scope=b"short", generation=1),
        Entry(
            tenant="", digest=b"", stored_at_s=0, expires_at_s=2e9, answer=ANSWER, scope=b"xx", generation=1
        ),
    ],
    ids=["target", "scope of an alias", "scope"],
)
async def test_hash_of_the_wrong_length_harms_neither_lookups_nor_erasure(
    client: Client, redis: Redis, value: Kept
) -> None:
    lies_at = alias_digest(DIGEST) if isinstance(value, Alias) else DIGEST
    key = entry_key(client.tenant, lies_at)
    poison = encode_entry(msgspec.structs.replace(value, tenant=client.tenant, digest=lies_at), CHECKSUM)
    await client.stored(OTHER)

    await redis.set(key, poison, ex=60)
    reply = await client.look_up(DIGEST)
    assert isinstance(reply, CacheMiss)
    assert reply.reason == "unreadable"
    assert await redis.exists(key) == 0

    await redis.set(key, poison, ex=60)
    done = await client.invalidate(erase=True)
    assert (done.error, done.num_left) == ("", 0)
    assert await redis.exists(key) == 0
    assert isinstance(await client.stored(DIGEST), CacheHit)


async def test_cache_deletes_an_entry_of_another_type(client: Client, redis: Redis) -> None:
    key = entry_key(client.tenant, DIGEST)
    await redis.lpush(key, "x")

    reply = await client.look_up(DIGEST)

    assert isinstance(reply, CacheMiss)
    assert reply.reason == "unreadable"
    assert await redis.exists(key) == 0


async def test_cache_deletes_an_entry_of_which_a_few_bytes_of_the_answer_were_replaced(
    client: Client, redis: Redis
) -> None:
    key = entry_key(client.tenant, DIGEST)
    await client.stored(DIGEST)
    value = await redis.get(key)
    assert isinstance(value, bytes)
    await redis.set(key, value.replace(b"Hel", b"Evi"), ex=60)

    reply = await client.look_up(DIGEST)

    assert isinstance(reply, CacheMiss)
    assert reply.reason == "unreadable"
    assert await redis.exists(key) == 0
    assert isinstance(await client.stored(DIGEST), CacheHit)


async def test_cache_serves_no_entry_with_a_flipped_bit_wherever_it_is(client: Client, redis: Redis) -> None:
    key = entry_key(client.tenant, DIGEST)
    await client.stored(DIGEST)
    value = await redis.get(key)
    assert isinstance(value, bytes)

    for place in range(len(value)):
        flipped = bytearray(value)
        flipped[place] ^= 1 << place % 8
        await redis.set(key, bytes(flipped), ex=60)
        assert isinstance(await client.look_up(DIGEST), CacheMiss), place
        assert await redis.exists(key) == 0

    await redis.set(key, value, ex=60)
    assert isinstance(await client.look_up(DIGEST), CacheHit)


@pytest.mark.parametrize("theirs", [b"", b"the secret of another deployment"], ids=["none", "another"])
async def test_cache_with_a_secret_deletes_what_was_sealed_without_it(
    nats_server: Server,
    redis_server: Server,
    redis: Redis,
    bus: Bus,
    region: str,
    tenant: str,
    tmp_path: Path,
    theirs: bytes,
) -> None:
    secret, file = b"the secret of this deployment", tmp_path / "secret"
    file.write_bytes(secret)
    client, key = Client(bus, region, tenant), entry_key(tenant, DIGEST)
    async with running_cache(nats_server, redis_server.url, region, secret_file=str(file)):
        generation = await client.generation(DIGEST)
        await redis.set(key, kept(tenant, time.time(), generation, Seal(theirs)), ex=60)
        assert isinstance(await client.look_up(DIGEST), CacheMiss)
        assert await redis.exists(key) == 0

        await redis.set(key, kept(tenant, time.time(), generation, Seal(secret)), ex=60)
        assert isinstance(await client.look_up(DIGEST), CacheHit)


async def test_cache_reads_an_entry_with_fields_of_a_later_version(client: Client, redis: Redis) -> None:
    value = kept(client.tenant, time.time(), await client.generation(DIGEST))
    entry = msgspec.msgpack.decode(value[SEAL_BYTES:])
    entry["answer"]["added_later"] = {"x": 1}
    entry["added_later"] = [2]
    later = CHECKSUM.closed(msgspec.msgpack.encode(entry), client.tenant, DIGEST)
    await redis.set(entry_key(client.tenant, DIGEST), later)

    reply = await client.look_up(DIGEST)

    assert isinstance(reply, CacheHit)
    assert reply.answer == ANSWER


async def test_cache_age_is_never_negative_when_clocks_disagree(client: Client, redis: Redis) -> None:
    value = kept(client.tenant, time.time() + 3600, await client.generation(DIGEST))
    await redis.set(entry_key(client.tenant, DIGEST), value)

    reply = await client.look_up(DIGEST)

    assert isinstance(reply, CacheHit)
    assert reply.age_s == 0


async def test_cache_stores_neither_cut_nor_oversized_nor_expired_answers(client: Client) -> None:
    cut = msgspec.structs.replace(ANSWER, finish_reason="length")
    large = msgspec.structs.replace(ANSWER, pieces=("x" * 1001,))
    await client.fill(DIGEST, cut)
    await client.fill(DIGEST, large)
    await client.fill(DIGEST, ttl_s=0)
    await client.fill(DIGEST, ttl_s=-1)

    await client.stored(OTHER)

    assert isinstance(await client.look_up(DIGEST), CacheMiss)


@pytest.mark.parametrize("digest", [b"", b"short", b"x" * 33])
async def test_cache_misses_a_digest_of_the_wrong_length(client: Client, digest: bytes) -> None:
    await client.fill(digest)

    assert isinstance(await client.look_up(digest), CacheMiss)


async def test_cache_answers_an_unreadable_lookup_with_a_miss(client: Client) -> None:
    assert isinstance(await client.ask(b"\xc1 nonsense"), CacheMiss)
    assert isinstance(await client.stored(DIGEST), CacheHit)


async def test_cache_span_is_a_child_of_the_caller_and_tells_the_outcome(
    nats_server: Server, redis_server: Server, bus: Bus, region: str, tenant: str
) -> None:
    exporter = InMemorySpanExporter()
    telemetry = Telemetry.create("cache", "c1", region, {}, exporter=exporter)
    caller = Telemetry.create("ingress", "i1", region, {}, exporter=InMemorySpanExporter())
    parent = caller.start(semconv.CACHE_LOOKUP, None)
    client = Client(bus, region, tenant)

    async with running_cache(nats_server, redis_server.url, region, telemetry=telemetry):
        await client.look_up(DIGEST, headers=inject(parent))
        await client.stored(DIGEST)
        await client.look_up(DIGEST, headers=inject(parent))
    telemetry.shutdown()
    caller.shutdown()

    context = parent.get_span_context()
    spans = [
        span
        for span in exporter.get_finished_spans()
        if span.parent is not None and span.parent.span_id == context.span_id
    ]
    assert [span.name for span in spans] == [semconv.CACHE_SERVE] * 2
    assert {span.parent.trace_id for span in spans if span.parent} == {context.trace_id}
    assert [(span.attributes or {})[semconv.CACHE_OUTCOME] for span in spans] == ["absent", "exact"]
    assert {(span.attributes or {})[semconv.REQUEST_ID] for span in spans} == {"r1"}

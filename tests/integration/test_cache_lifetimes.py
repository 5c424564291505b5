"""C12: what is kept ends at its time, whoever asks for it meanwhile; nothing in Redis is without an end."""

import asyncio
import hashlib
import logging
import os
import sys
from collections.abc import AsyncIterator

import msgspec
import pytest
from redis.asyncio import Redis
from tests.integration.cache_service import ANSWER, Client, running_cache
from tests.integration.embedder_fake import DIMENSION, SteeredEmbedder, bounded
from tests.patience import PATIENCE_S
from tests.servers import Server, nats_server, redisearch_module, uses_containers

from sub100_cache.config import CacheConfig
from sub100_cache.guard import WORDING
from sub100_cache.store.entries import alias_digest, entry_key, vector_key, vector_space
from sub100_cache.tenants import TenantRules
from sub100_proto.cache import CacheAlias, CacheHit, CacheMiss, CacheObserved
from sub100_shared.bus import Bus

pytestmark = pytest.mark.skipif(
    not uses_containers() and not redisearch_module(), reason="no query engine for this Redis"
)

MAX_TTL_S = 300
CONFIG = CacheConfig(
    max_lookup_ms=5_000,
    probe_interval_s=0.05,
    counts_interval_s=0.05,
    max_ttl_s=MAX_TTL_S,
    max_tenant_entries=4,
)
SCOPE = hashlib.sha256(b"a scope").digest()
STORED, SAME = "Can I freeze a cooked potato?", "Can I freeze cooked potatoes?"
WORDED, JUDGED = "Hello! Can I freeze a cooked potato?", "potatoes, frozen"
"""In the wording of what is stored, and judged to ask the same."""


def digest(question: str) -> bytes:
    return hashlib.sha256(question.encode()).digest()


def steered(name: str = "steered") -> SteeredEmbedder:
    embedder = SteeredEmbedder(name)
    embedder.default_degrees = 10.0
    return embedder


@pytest.fixture
async def redis(own_redis_server: Server) -> AsyncIterator[Redis]:
    connection = Redis.from_url(own_redis_server.url)
    yield connection
    await connection.aclose()


@pytest.fixture
async def client(
    nats_server: Server, own_redis_server: Server, bus: Bus, region: str, tenant: str
) -> AsyncIterator[Client]:
    front = bounded(steered())
    async with running_cache(nats_server, own_redis_server.url, region, config=CONFIG, embedder=front):
        client = Client(bus, region, tenant)
        yield client


async def stored_with_alias(client: Client, ttl_s: int) -> None:
    await client.stored(digest(STORED), scope=SCOPE, question=STORED, ttl_s=ttl_s)
    alias = CacheAlias(
        tenant=client.tenant,
        digest=digest(JUDGED),
        target=digest(STORED),
        generation=await client.generation(digest(JUDGED), scope=SCOPE),
        scope=SCOPE,
    )
    await client.write(alias)
    await client.reply_until(digest(JUDGED), lambda reply: isinstance(reply, CacheHit))


async def test_hits_of_every_kind_renew_no_time_to_live_and_it_ends_at_its_time(
    client: Client, redis: Redis
) -> None:
    """Ends are absolute in Redis, so that nothing here depends on how quick this machine is."""
    await stored_with_alias(client, ttl_s=3)
    space = vector_space(f"steered-w{WORDING}", DIMENSION)
    names = [key.decode() async for key in redis.scan_iter(match="sub100:cache:vec:*")]
    worded = [key.decode() async for key in redis.scan_iter(match="sub100:cache:wording:*")]
    alias = entry_key(client.tenant, alias_digest(digest(JUDGED)))
    keys = [entry_key(client.tenant, digest(STORED)), *names, *worded]
    assert (len(names), len(worded)) == (1, 1)
    assert names[0].endswith(vector_key(space, client.tenant, digest(STORED))[-64:])
    ends = [await redis.pexpiretime(key) for key in keys]
    end_of_alias = await redis.pexpiretime(alias)
    num_hits = dict.fromkeys((STORED, SAME, WORDED, JUDGED), 0)

    async with asyncio.timeout(PATIENCE_S):
        while True:
            replies = {
                question: await client.look_up(digest(question), scope=SCOPE, question=question)
                for question in num_hits
            }
            if not any(isinstance(reply, CacheHit) for reply in replies.values()):
                break
            for question, reply in replies.items():
                num_hits[question] += isinstance(reply, CacheHit)
            assert all(
                [await redis.pexpiretime(key) in (end, -2) for key, end in zip(keys, ends, strict=True)]
            )
            assert await redis.pexpiretime(alias) == end_of_alias

    assert min(num_hits.values()) > 3
    seconds, micros = await redis.time()
    assert seconds * 1e3 + micros / 1e3 >= max(ends) - 2, "none of them went before its time"
    assert await redis.exists(*keys) == 0


async def test_every_key_in_redis_has_an_end_within_the_longest_time_to_live(
    own_redis_server: Server, redis: Redis, tenant: str
) -> None:
    """After fills, evictions, aliases, semantic hits, shadow observations, invalidations and a followed log:
    answers, vectors, wordings, generations, ledgers, counts and the place in the log."""
    config = msgspec.structs.replace(CONFIG, log="jetstream")
    with nats_server() as own_nats:
        bus = await Bus.connect(own_nats.url, name="test")
        rules = {tenant: TenantRules(max_entries=4)}
        async with running_cache(
            own_nats, own_redis_server.url, "eu", config=config, embedder=bounded(steered()), rules=rules
        ):
            client = Client(bus, "eu", tenant)
            await client.reply_until(b"\0" * 32, lambda reply: bool(reply.generation))
            for number in range(6):
                question = f"question {number}"
                await client.stored(digest(question), scope=SCOPE, question=question, ttl_s=99)
            await stored_with_alias(client, ttl_s=10**6)
            assert isinstance(await client.look_up(digest(SAME), scope=SCOPE, question=SAME), CacheHit)
            await client.write(CacheObserved(tenant=tenant, tier="semantic", agreed=True))
            await client.invalidate(revision="r1")
            await client.stored(digest("streamed"), ANSWER, scope=SCOPE, question="streamed", revision="r2")
            other = Client(bus, "eu", f"{tenant}-other")
            await other.invalidate(scope=SCOPE)
            kinds: set[str] = set()
            async with asyncio.timeout(PATIENCE_S):
                while len(kinds) < 8:
                    kinds = {key.decode().split(":")[2] async for key in redis.scan_iter()}
            ends = {key.decode(): await redis.pttl(key) async for key in redis.scan_iter()}
        await bus.close(2)

    assert kinds == {"v4", "vec", "wording", "generations", "expiry", "sizes", "counts", "log"}
    assert {key: ttl for key, ttl in ends.items() if not 0 < ttl <= MAX_TTL_S * 1000} == {}


async def test_record_outlives_every_answer_that_was_written_under_it(client: Client, redis: Redis) -> None:
    """Or an answer would end before its time, and a tenant be invalidated by nobody."""
    for question, ttl_s in (("long", MAX_TTL_S), ("short", 5)):
        await client.stored(digest(question), scope=SCOPE, question=question, ttl_s=ttl_s)

    record = await redis.pexpiretime(f"sub100:cache:generations:v1:{{{client.tenant}}}")

    ends = [await redis.pexpiretime(entry_key(client.tenant, digest(name))) for name in ("long", "short")]
    assert record >= max(ends)
    assert record - max(ends) < 60_000


async def test_restart_with_another_embedder_of_equal_width_uses_no_old_vector_and_says_so(
    nats_server: Server,
    own_redis_server: Server,
    bus: Bus,
    region: str,
    tenant: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = Client(bus, region, tenant)
    caplog.set_level(logging.INFO, "sub100_cache")
    for name, is_answered in (("one", True), ("other", False), ("one", True)):
        caplog.clear()
        front = bounded(steered(name))
        async with running_cache(nats_server, own_redis_server.url, region, config=CONFIG, embedder=front):
            if is_answered:
                await client.stored(digest(STORED), scope=SCOPE, question=STORED)
            reply = await client.look_up(digest(SAME), scope=SCOPE, question=SAME)
            exact = await client.look_up(digest(STORED), scope=SCOPE, question=STORED)
        assert isinstance(reply, CacheHit if is_answered else CacheMiss)
        assert isinstance(exact, CacheHit), "equal questions need no vector"
        told = [record for record in caplog.records if "any other embedder are not used" in record.message]
        assert [getattr(record, "index", "").split(":")[-1] for record in told] == [
            f"{name}-w{WORDING}-{DIMENSION}"
        ]


async def test_service_refuses_to_start_with_an_embedder_of_another_dimension(
    nats_server: Server, own_redis_server: Server
) -> None:
    """A real process and a real endpoint: it ends with 2 and names the variable and both widths."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        await reader.readexactly(int(head.split("content-length: ")[1].split("\r\n")[0]))
        content = b'{"data": [{"embedding": [1.0, 0.0, 0.0, 0.0]}]}'
        writer.write(
            b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(content) + content
        )
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SUB100_", "OTEL_"))}
    env |= {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "SUB100_NATS_URL": nats_server.url,
        "SUB100_REDIS_URL": own_redis_server.url,
        "SUB100_CACHE_EMBEDDER": "endpoint",
        "SUB100_CACHE_EMBEDDER_URL": f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1",
        "SUB100_CACHE_EMBEDDER_MODEL": "m",
        "SUB100_CACHE_EMBEDDER_DIMENSION": "3",
        "SUB100_OPS_PORT": "0",
        "OTEL_METRICS_EXPORTER": "none",
    }
    async with listening, asyncio.timeout(60):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sub100_cache"),
            env=env,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()

    assert process.returncode == 2, output.decode()
    assert "SUB100_CACHE_EMBEDDER_DIMENSION: the embedder's vectors have 4 numbers, not 3" in output.decode()

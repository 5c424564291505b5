"""A semantic tier whose parts are dead, slow or lost: misses within the allotment, and it heals by itself."""

import asyncio
import hashlib
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from tests.integration.cache_service import ANSWER, Client, running_cache
from tests.integration.embedder_fake import SteeredEmbedder, bounded
from tests.patience import PATIENCE_S
from tests.servers import Server, redisearch_module, uses_containers

from sub100_cache.breaker import MAX_SLOW
from sub100_cache.config import CacheConfig
from sub100_proto.cache import CacheHit, CacheMiss, CacheReply
from sub100_shared.bus import Bus

pytestmark = pytest.mark.skipif(
    not uses_containers() and not redisearch_module(), reason="no query engine for this Redis"
)

CONFIG = CacheConfig(max_lookup_ms=5_000, probe_interval_s=0.05)
SCOPE = hashlib.sha256(b"a scope").digest()
STORED = "Can I freeze a cooked potato?"
SAME = "Can I freeze cooked potatoes?"
"""In another wording, so that an embedder is needed."""

EXACT = hashlib.sha256(STORED.encode()).digest()
ASKED = hashlib.sha256(SAME.encode()).digest()
ALLOTTED_MS = 60.0
SLACK_MS = 700.0
"""What this machine may add; a look-up that waited for more than its allotment would take a second."""


class Case:
    def __init__(self, client: Client, embedder: SteeredEmbedder) -> None:
        self.client = client
        self.embedder = embedder

    async def ask(self, allotted_ms: float = 5000.0) -> CacheReply:
        return await self.client.look_up(ASKED, scope=SCOPE, question=SAME, allotted_ms=allotted_ms)

    async def store(self) -> None:
        await self.client.stored(EXACT, scope=SCOPE, question=STORED)

    async def heals(self) -> CacheHit:
        """Fill and ask until the semantic tier answers."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                await self.store()
                reply = await self.ask()
                if isinstance(reply, CacheHit):
                    return reply


@pytest.fixture
async def case(
    nats_server: Server, own_redis_server: Server, bus: Bus, region: str, tenant: str
) -> AsyncIterator[Case]:
    embedder = SteeredEmbedder()
    embedder.default_degrees = 10.0
    # Nothing is kept: each question is embedded again.
    front = bounded(embedder, num_kept=0)
    async with running_cache(nats_server, own_redis_server.url, region, config=CONFIG, embedder=front):
        case = Case(Client(bus, region, tenant), embedder)
        assert (await case.heals()).tier == "semantic"
        yield case


async def test_cache_misses_within_the_allotment_while_the_embedder_hangs_and_recovers(case: Case) -> None:
    case.embedder.gate.clear()

    replies = [await case.ask(ALLOTTED_MS) for _ in range(MAX_SLOW)]
    assert all(isinstance(reply, CacheMiss) for reply in replies)
    assert all(reply.spent_ms < ALLOTTED_MS + SLACK_MS for reply in replies)
    assert replies[0].spent_ms >= ALLOTTED_MS - 2
    num_calls = case.embedder.num_calls
    spent_ms = sorted([(await case.ask(ALLOTTED_MS)).spent_ms for _ in range(9)])
    assert spent_ms[4] < ALLOTTED_MS / 2, "a hung embedder is not asked again by look-ups"
    assert case.embedder.num_calls <= num_calls + 1, "but by the prober"

    hit = await case.client.look_up(EXACT, scope=SCOPE, question=STORED)
    assert isinstance(hit, CacheHit)
    assert hit.tier == "exact"
    case.embedder.gate.set()
    assert (await case.heals()).tier == "semantic"


async def test_cache_misses_while_the_embedder_is_broken_and_recovers(case: Case) -> None:
    case.embedder.error = "failed"

    replies = [await case.ask() for _ in range(3)]
    await case.client.fill(ASKED[::-1], scope=SCOPE, question="something else")
    hit = await case.client.reply_until(ASKED[::-1], lambda reply: isinstance(reply, CacheHit))

    assert all(isinstance(reply, CacheMiss) and reply.reason == "absent" for reply in replies)
    assert isinstance(hit, CacheHit), "the exact tier takes what cannot be embedded"
    case.embedder.error = ""
    assert (await case.heals()).tier == "semantic"


async def test_cache_makes_a_lost_index_again_and_finds_what_was_there(
    case: Case, own_redis_server: Server
) -> None:
    async with Redis.from_url(own_redis_server.url) as redis:
        for name in await redis.execute_command("FT._LIST"):  # type: ignore[no-untyped-call]
            await redis.ft(name.decode()).dropindex()

    assert isinstance(await case.ask(), CacheMiss)

    # Its vectors are still there: Redis indexes them anew, and nothing is filled again.
    async with asyncio.timeout(PATIENCE_S):
        while not isinstance(reply := await case.ask(), CacheHit):
            pass
    assert reply.answer == ANSWER


async def test_cache_finds_its_way_after_a_restart_that_lost_everything(
    case: Case, own_redis_server: Server
) -> None:
    own_redis_server.kill()
    reply = await case.ask(ALLOTTED_MS)
    assert isinstance(reply, CacheMiss)
    assert reply.spent_ms < ALLOTTED_MS + SLACK_MS

    own_redis_server.start()

    assert (await case.heals()).tier == "semantic"


async def test_cache_misses_within_the_allotment_while_redis_hangs(
    case: Case, own_redis_server: Server
) -> None:
    own_redis_server.pause()
    reply = await case.ask(ALLOTTED_MS)
    own_redis_server.resume()

    assert isinstance(reply, CacheMiss)
    assert reply.reason == "unavailable"
    assert reply.spent_ms < ALLOTTED_MS + SLACK_MS
    assert (await case.heals()).tier == "semantic"


async def test_cache_serves_what_it_has_while_redis_is_full(case: Case, own_redis_server: Server) -> None:
    async with Redis.from_url(own_redis_server.url) as redis:
        await redis.config_set("maxmemory-policy", "noeviction")
        await redis.config_set("maxmemory", "1mb")
        await case.client.fill(ASKED[::-1], scope=SCOPE, question="something else")
        assert isinstance(await case.ask(), CacheHit)
        assert isinstance(await case.client.look_up(ASKED[::-1]), CacheMiss)
        await redis.config_set("maxmemory", "0")

    await case.client.stored(ASKED[::-1], scope=SCOPE, question="something else")


async def test_cache_never_compares_vectors_of_another_embedder(
    nats_server: Server, redis_server: Server, bus: Bus, region: str, tenant: str
) -> None:
    """Of the same width, so that nothing else would tell them apart."""
    client = Client(bus, region, tenant)
    for name, expected in (("one", CacheHit), ("other", CacheMiss), ("one", CacheHit)):
        embedder = SteeredEmbedder(name)
        embedder.default_degrees = 10.0
        async with running_cache(
            nats_server, redis_server.url, region, config=CONFIG, embedder=bounded(embedder)
        ):
            case = Case(client, embedder)
            if name == "one":
                await case.heals()
            assert isinstance(await case.ask(), expected)

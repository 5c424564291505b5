"""Who asks in the wording of what is stored is answered without embedder or search; the guard decides."""

import hashlib
from collections.abc import AsyncIterator

import msgspec
import pytest
from redis.asyncio import Redis
from tests.integration.cache_service import ANSWER, Client, running_cache
from tests.integration.embedder_fake import SteeredEmbedder, bounded
from tests.servers import Server, redisearch_module, uses_containers

from sub100_cache.config import CacheConfig
from sub100_cache.guard import read, refusal
from sub100_cache.store.entries import entry_key, wording_digest, wording_key
from sub100_proto.cache import CachedAnswer, CacheHit, CacheMiss, CacheReply
from sub100_shared.bus import Bus

pytestmark = pytest.mark.skipif(
    not uses_containers() and not redisearch_module(), reason="no query engine for this Redis"
)

CONFIG = CacheConfig(max_lookup_ms=5_000, probe_interval_s=0.05, max_tenant_entries=4)
SCOPE = hashlib.sha256(b"a scope").digest()
OTHER_SCOPE = hashlib.sha256(b"another scope").digest()
STORED = "How do I clean a wooden table?"
SAME = "Could you tell me how to clean a wooden table?"
ALSO = "Please tell me how to clean a wooden table"
CAPITALS, CARELESS = "Do polish sausages taste good?", "Do Polish sausages taste good?"
"""One wording that the guard tells apart."""


def digest(question: str, scope: bytes = SCOPE) -> bytes:
    return hashlib.sha256(scope + question.encode()).digest()


def key_of(client: Client, question: str, scope: bytes = SCOPE) -> str:
    return wording_key(client.tenant, wording_digest(scope, read(question).wording))


def answer(text: str) -> CachedAnswer:
    return msgspec.structs.replace(ANSWER, pieces=(text,))


class Case:
    def __init__(self, client: Client, embedder: SteeredEmbedder) -> None:
        self.client = client
        self.embedder = embedder

    async def ask(self, question: str, scope: bytes = SCOPE) -> CacheReply:
        return await self.client.look_up(digest(question, scope), scope=scope, question=question)

    async def store(self, question: str, scope: bytes = SCOPE, text: str = "stored", ttl_s: int = 60) -> None:
        await self.client.stored(
            digest(question, scope), answer(text), scope=scope, question=question, ttl_s=ttl_s
        )


@pytest.fixture
async def case(
    nats_server: Server, redis_server: Server, bus: Bus, region: str, tenant: str
) -> AsyncIterator[Case]:
    """Each text has its own vector, and none is kept."""
    embedder = SteeredEmbedder()
    front = bounded(embedder, num_kept=0)
    async with running_cache(nats_server, redis_server.url, region, config=CONFIG, embedder=front):
        yield Case(Client(bus, region, tenant), embedder)


def hit_of(reply: CacheReply) -> tuple[str, tuple[str, ...], float]:
    assert isinstance(reply, CacheHit)
    return reply.tier, reply.answer.pieces, reply.similarity


async def test_same_wording_is_a_semantic_hit_that_asks_no_embedder(case: Case) -> None:
    await case.store(STORED)
    num_calls = case.embedder.num_calls

    for question in (SAME, ALSO):
        assert hit_of(await case.ask(question)) == ("semantic", ("stored",), 1.0)

    assert case.embedder.num_calls == num_calls


@pytest.mark.parametrize("fault", ["broken", "index lost"])
async def test_same_wording_is_answered_when_nothing_can_be_compared(
    case: Case, redis: Redis, fault: str
) -> None:
    await case.store(STORED)
    if fault == "broken":
        case.embedder.error = "failed"
    else:
        for name in await redis.execute_command("FT._LIST"):  # type: ignore[no-untyped-call]
            await redis.ft(name.decode()).dropindex()

    assert hit_of(await case.ask(SAME)) == ("semantic", ("stored",), 1.0)


async def test_one_wording_that_the_guard_tells_apart_is_refused_and_judged_by_nearness(case: Case) -> None:
    assert read(CAPITALS).wording == read(CARELESS).wording
    assert refusal(read(CARELESS), read(CAPITALS)) == "name"
    await case.store(CAPITALS)

    reply = await case.ask(CARELESS)

    assert isinstance(reply, CacheMiss)
    assert reply.near is not None
    assert (reply.near.question, reply.near.rule) == (CAPITALS, "name")


async def test_wording_crosses_neither_scope_nor_tenant(case: Case) -> None:
    await case.store(STORED)

    assert isinstance(await case.ask(SAME, OTHER_SCOPE), CacheMiss)
    for stranger in ("somebody-else", f"{case.client.tenant}x"):
        reply = await case.client.look_up(digest(SAME), tenant=stranger, scope=SCOPE, question=SAME)
        assert isinstance(reply, CacheMiss)


async def test_wording_that_names_an_answer_to_something_else_serves_nothing(
    case: Case, redis: Redis
) -> None:
    """Whatever is written there only proposes: another question, another scope, or what is no digest."""
    await case.store(STORED)
    await case.store("Why is the sky blue?")
    await case.store(STORED, OTHER_SCOPE, "other scope")
    case.embedder.error = "failed"
    await redis.set(key_of(case.client, STORED), digest("Why is the sky blue?").hex())
    assert isinstance(await case.ask(SAME), CacheMiss)
    await redis.set(key_of(case.client, STORED), digest(STORED, OTHER_SCOPE).hex())
    assert isinstance(await case.ask(SAME), CacheMiss)
    for value in (b"", b"no digest", digest(STORED), b"ab"):
        await redis.set(key_of(case.client, STORED), value)
        assert isinstance(await case.ask(SAME), CacheMiss)
    await redis.delete(key_of(case.client, STORED))
    await redis.lpush(key_of(case.client, STORED), "a list")
    assert isinstance(await case.ask(SAME), CacheMiss)


async def test_last_answer_of_a_wording_is_served_and_no_invalidated_one(case: Case) -> None:
    await case.store(STORED, text="first")
    await case.store(ALSO, text="second")
    assert hit_of(await case.ask(SAME))[1] == ("second",)

    await case.client.invalidate(scope=SCOPE)
    assert isinstance(await case.ask(SAME), CacheMiss)


async def test_wording_goes_with_its_answer_and_stays_with_anothers(case: Case, redis: Redis) -> None:
    """Of two answers of one wording it is the last one's, which makes no room for the first; the quota of
    four lets those go first that end first."""
    await case.store(STORED, text="first", ttl_s=30)
    await case.store(ALSO, text="second", ttl_s=60)
    for number in range(3):
        await case.store(f"What is the capital of country {number}?", ttl_s=90)
    assert not await redis.exists(entry_key(case.client.tenant, digest(STORED)))
    assert hit_of(await case.ask(SAME))[1] == ("second",)

    await case.store("What is the capital of country 4?", ttl_s=90)
    assert not await redis.exists(entry_key(case.client.tenant, digest(ALSO)))
    assert not await redis.exists(key_of(case.client, STORED))


async def test_erasure_leaves_no_wording_behind(case: Case, redis: Redis) -> None:
    await case.store(STORED)
    left_over = key_of(case.client, "whose answer is gone already")
    await redis.set(left_over, digest("whose answer is gone already").hex(), ex=60)

    erased = await case.client.invalidate(erase=True)

    assert (erased.error, erased.num_erased, erased.num_left) == ("", 4, 0)
    assert [key async for key in redis.scan_iter(match=f"sub100:cache:*{{{case.client.tenant}}}:*")] == []

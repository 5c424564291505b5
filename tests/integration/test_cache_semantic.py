"""The semantic tier on a real Redis with vector search and the real embedder."""

import hashlib
from collections.abc import AsyncIterator

import msgspec
import pytest
from redis.asyncio import Redis
from tests.integration.cache_service import ANSWER, Client, running_cache
from tests.servers import Server, redisearch_module, uses_containers

from sub100_cache.config import CacheConfig
from sub100_cache.embedders.choice import open_embedder
from sub100_cache.store.entries import alias_digest, entry_key
from sub100_proto.cache import CacheAlias, CachedAnswer, CacheHit, CacheMiss
from sub100_shared.bus import Bus

pytestmark = pytest.mark.skipif(
    not uses_containers() and not redisearch_module(), reason="no query engine for this Redis"
)

CONFIG = CacheConfig(embedder="minilm", max_lookup_ms=5_000, probe_interval_s=0.05)
SCOPE = hashlib.sha256(b"a scope").digest()
OTHER_SCOPE = hashlib.sha256(b"another scope").digest()
STORED = "How do I reset my password?"
SAME = "Hi, can you tell me how to reset my password ?"
SAFE = "Is it safe to take ibuprofen with alcohol?"
OPPOSITE = "Is it not safe to take ibuprofen with alcohol?"


def digest(question: str, scope: bytes = SCOPE) -> bytes:
    return hashlib.sha256(scope + question.encode()).digest()


def answer(text: str) -> CachedAnswer:
    return msgspec.structs.replace(ANSWER, pieces=(text,))


async def alias_of_stored(client: Client, asked: bytes, scope: bytes = SCOPE) -> CacheAlias:
    return CacheAlias(
        tenant=client.tenant,
        digest=asked,
        target=digest(STORED),
        generation=await client.generation(asked, scope=scope),
        scope=scope,
    )


@pytest.fixture
async def client(
    nats_server: Server, redis_server: Server, bus: Bus, region: str, tenant: str
) -> AsyncIterator[Client]:
    embedder = open_embedder(CONFIG)
    async with running_cache(nats_server, redis_server.url, region, config=CONFIG, embedder=embedder):
        yield Client(bus, region, tenant)


async def test_cache_answers_a_question_that_asks_the_same(client: Client) -> None:
    await client.stored(digest(STORED), scope=SCOPE, question=STORED)

    reply = await client.look_up(digest(SAME), scope=SCOPE, question=SAME)

    assert isinstance(reply, CacheHit)
    assert reply.tier == "semantic"
    assert reply.answer == ANSWER
    assert 0.92 <= reply.similarity <= 1
    assert 0 <= reply.age_s < 10


async def test_cache_refuses_the_opposite_and_names_the_near_miss(client: Client) -> None:
    await client.stored(digest(SAFE), scope=SCOPE, question=SAFE)

    reply = await client.look_up(digest(OPPOSITE), scope=SCOPE, question=OPPOSITE)

    assert isinstance(reply, CacheMiss)
    assert reply.near is not None
    assert reply.near.question == SAFE
    assert reply.near.digest == digest(SAFE)
    assert reply.near.similarity >= 0.98
    assert reply.near.rule == "negation"


async def test_cache_crosses_neither_scope_nor_tenant_for_the_very_same_question(client: Client) -> None:
    await client.stored(digest(STORED), scope=SCOPE, question=STORED)

    assert isinstance(
        await client.look_up(digest(STORED, OTHER_SCOPE), scope=OTHER_SCOPE, question=STORED), CacheMiss
    )
    for stranger in ("somebody-else", "*", f"{client.tenant}x", "{}|(", ""):
        reply = await client.look_up(digest(SAME), tenant=stranger or "-", scope=SCOPE, question=SAME)
        assert reply == CacheMiss(spent_ms=reply.spent_ms, generation=reply.generation)


async def test_cache_leaves_the_semantic_tier_alone_when_no_scope_is_given(client: Client) -> None:
    await client.stored(digest(STORED), scope=SCOPE, question=STORED)

    assert isinstance(await client.look_up(digest(SAME), question=SAME), CacheMiss)
    assert isinstance(await client.look_up(digest(SAME), scope=SCOPE), CacheMiss)


async def test_cache_heeds_the_threshold_of_the_lookup(client: Client) -> None:
    """The guard lets both through; their cosine is 0.97."""
    one, several = "Can I freeze a cooked potato?", "Can I freeze cooked potatoes?"
    await client.stored(digest(one), scope=SCOPE, question=one)

    reply = await client.look_up(digest(several), scope=SCOPE, question=several, threshold=0.99)
    assert isinstance(reply, CacheMiss)
    assert reply.near is None

    reply = await client.look_up(digest(several), scope=SCOPE, question=several, threshold=0.96)
    assert isinstance(reply, CacheHit)
    assert 0.96 < reply.similarity < 0.99


async def test_cache_misses_an_answer_older_than_the_lookup_takes(client: Client) -> None:
    await client.stored(digest(STORED), scope=SCOPE, question=STORED)

    for question in (STORED, SAME):
        reply = await client.look_up(digest(question), scope=SCOPE, question=question, max_age_s=0)
        assert isinstance(reply, CacheMiss)
        assert reply.reason == "stale"
        hit = await client.look_up(digest(question), scope=SCOPE, question=question, max_age_s=60)
        assert isinstance(hit, CacheHit)


async def test_cache_lets_vector_wording_and_answer_die_together(client: Client, redis: Redis) -> None:
    await client.stored(digest(STORED), scope=SCOPE, question=STORED, ttl_s=50)

    keys = [key async for key in redis.scan_iter(match=f"sub100:cache:*{{{client.tenant}}}:*")]

    assert len(keys) == 3
    assert all([0 < await redis.ttl(key) <= 50 for key in keys])


async def test_cache_misses_when_the_index_names_an_entry_that_is_gone(client: Client, redis: Redis) -> None:
    await client.stored(digest(STORED), scope=SCOPE, question=STORED)
    await redis.delete(entry_key(client.tenant, digest(STORED)))

    reply = await client.look_up(digest(SAME), scope=SCOPE, question=SAME)

    assert reply == CacheMiss(spent_ms=reply.spent_ms, generation=reply.generation)


async def test_cache_believes_no_entry_that_was_put_under_anothers_key(client: Client, redis: Redis) -> None:
    await client.stored(digest(STORED), scope=SCOPE, question=STORED)
    await client.stored(digest(STORED, OTHER_SCOPE), answer("other"), scope=OTHER_SCOPE, question=STORED)
    stolen = await redis.get(entry_key(client.tenant, digest(STORED, OTHER_SCOPE)))
    assert stolen is not None
    await redis.set(entry_key(client.tenant, digest(STORED)), stolen)

    assert isinstance(await client.look_up(digest(SAME), scope=SCOPE, question=SAME), CacheMiss)
    assert await redis.exists(entry_key(client.tenant, digest(STORED))) == 0


async def test_cache_alias_makes_the_judged_question_an_exact_hit(client: Client, redis: Redis) -> None:
    await client.stored(digest(STORED), scope=SCOPE, question=STORED, ttl_s=40)
    asked = digest("Password reset, where?")

    await client.write(await alias_of_stored(client, asked))

    hit = await client.reply_until(asked, lambda reply: isinstance(reply, CacheHit))
    assert isinstance(hit, CacheHit)
    assert (hit.tier, hit.answer) == ("exact", ANSWER)
    assert 40 < await redis.ttl(entry_key(client.tenant, alias_digest(asked))) <= CONFIG.max_ttl_s


async def test_cache_alias_hits_whichever_answer_its_target_has_and_none_without(
    client: Client, redis: Redis
) -> None:
    await client.stored(digest(STORED), scope=SCOPE, question=STORED)
    asked = digest("Password reset, where?")
    await client.write(await alias_of_stored(client, asked))
    await client.reply_until(asked, lambda reply: isinstance(reply, CacheHit))

    await redis.delete(entry_key(client.tenant, digest(STORED)))
    assert isinstance(await client.look_up(asked), CacheMiss)

    await client.stored(digest(STORED), answer("a later one"), scope=SCOPE, question=STORED)
    hit = await client.look_up(asked)
    assert isinstance(hit, CacheHit)
    assert hit.answer == answer("a later one")


async def test_cache_alias_is_worth_an_answer_when_the_questions_own_is_gone(
    client: Client, redis: Redis
) -> None:
    """As it goes: a near hit is refused, the answer made and kept, and then the judge says yes."""
    await client.stored(digest(STORED), scope=SCOPE, question=STORED)
    own = digest("own answer")
    await client.stored(own, answer("own"), scope=SCOPE, question="own answer")
    last = digest("last")
    await client.write(await alias_of_stored(client, own))
    await client.write(await alias_of_stored(client, last))
    await client.reply_until(last, lambda reply: isinstance(reply, CacheHit))

    hit = await client.look_up(own)
    assert isinstance(hit, CacheHit)
    assert hit.answer == answer("own")

    await redis.delete(entry_key(client.tenant, own))
    hit = await client.look_up(own)
    assert isinstance(hit, CacheHit)
    assert hit.answer == ANSWER


async def test_cache_alias_never_crosses_a_scope(client: Client) -> None:
    await client.stored(digest(STORED), scope=SCOPE, question=STORED)
    stranger, last = digest("stranger"), digest("last")

    await client.write(await alias_of_stored(client, stranger, OTHER_SCOPE))
    await client.write(await alias_of_stored(client, last))
    await client.reply_until(last, lambda reply: isinstance(reply, CacheHit))

    assert isinstance(await client.look_up(stranger), CacheMiss)

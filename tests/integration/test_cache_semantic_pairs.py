"""C02 over the running service: store the first question of a minimal pair, ask the second."""

import hashlib
from collections.abc import AsyncIterator

import pytest
from tests.integration.cache_service import Client, running_cache
from tests.minimal_pairs import PAIRS
from tests.servers import Server, redisearch_module, uses_containers

from sub100_cache.config import CacheConfig
from sub100_cache.embedders.choice import open_embedder
from sub100_proto.cache import CacheHit, CacheMiss
from sub100_shared.bus import Bus

pytestmark = pytest.mark.skipif(
    not uses_containers() and not redisearch_module(), reason="no query engine for this Redis"
)

CONFIG = CacheConfig(embedder="minilm", max_lookup_ms=5_000, probe_interval_s=0.05)
SCOPE = hashlib.sha256(b"a scope").digest()
GUARD_ALONE = 0.01
"""A threshold that every stored question passes; 0 is the service's own."""


def digest(question: str) -> bytes:
    return hashlib.sha256(SCOPE + question.encode()).digest()


@pytest.fixture
async def client(
    nats_server: Server, redis_server: Server, bus: Bus, region: str, tenant: str
) -> AsyncIterator[Client]:
    embedder = open_embedder(CONFIG)
    async with running_cache(nats_server, redis_server.url, region, config=CONFIG, embedder=embedder):
        yield Client(bus, region, tenant)


@pytest.mark.parametrize("threshold", [GUARD_ALONE, 0.0], ids=["guard alone", "default threshold"])
async def test_cache_never_answers_the_second_of_a_minimal_pair_from_the_first(
    client: Client, threshold: float
) -> None:
    """All firsts are there at once, so that each second may also meet the first of another pair."""
    for pair in PAIRS:
        await client.stored(digest(pair.a), scope=SCOPE, question=pair.a)

    num_near = 0
    for pair in PAIRS:
        reply = await client.look_up(digest(pair.b), scope=SCOPE, question=pair.b, threshold=threshold)
        assert isinstance(reply, CacheMiss), pair
        assert reply.reason == "absent", pair
        num_near += reply.near is not None
        again = await client.look_up(digest(pair.a), scope=SCOPE, question=pair.a, threshold=threshold)
        assert isinstance(again, CacheHit), pair

    # The guard was asked: without it most of them would have been answered.
    assert num_near == len(PAIRS) if threshold == GUARD_ALONE else num_near >= len(PAIRS) // 2

"""The store on a real Redis Cluster: each tenant in one slot, tenants over all nodes."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cache_service import ANSWER, Client, running_cache
from tests.integration.embedder_fake import SteeredEmbedder, bounded
from tests.integration.redis_cluster import NUM_NODES, redis_cluster
from tests.patience import PATIENCE_S
from tests.servers import Server, redisearch_module, uses_containers

from sub100_cache.breaker import Breaker
from sub100_cache.config import CacheConfig
from sub100_cache.embedders.choice import open_embedder
from sub100_cache.store.commands import SLOW_S, Commands
from sub100_cache.store.counts import Counts
from sub100_cache.store.exact import ExactTier
from sub100_cache.store.generations import Generations, Question, Token
from sub100_cache.store.ledger import Ledger, Quota
from sub100_cache.store.log_place import Place
from sub100_cache.store.seal import Seal
from sub100_cache.store.sweep import Sweep
from sub100_cache.store.writes import QuestionVector, Writes
from sub100_proto.cache import CacheAlias, CacheFill, CacheHit, CacheMiss
from sub100_shared.bus import Bus

pytestmark = pytest.mark.skipif(uses_containers(), reason="nodes of a cluster must reach each other")

SCOPE = hashlib.sha256(b"a scope").digest()
TENANTS = [f"tenant-{number}" for number in range(8)]
STORED, SAME = "Can I freeze a cooked potato?", "Can I freeze cooked potatoes?"
SLACK_MS = 700.0
"""What this machine may add; whoever waited for a dead node would take a second."""
OPPOSITE = "Can I not freeze a cooked potato?"


def digest(name: object) -> bytes:
    return hashlib.sha256(str(name).encode()).digest()


needs_engine = pytest.mark.skipif(not redisearch_module(), reason="no query engine for this Redis")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[tuple[Any, list[Server]]]:
    async with redis_cluster(tmp_path) as started:
        yield started


@pytest.fixture
async def commands(cluster: tuple[Any, list[Server]]) -> Commands:
    commands = Commands(cluster[0], Breaker(SLOW_S), 8)
    await commands.probe()
    return commands


async def test_store_fills_evicts_invalidates_and_erases_on_a_cluster(commands: Commands) -> None:
    generations, ledger, counts = Generations(commands, 60), Ledger(commands), Counts(commands, 60)
    exact = ExactTier(commands, generations, Seal())
    writes = Writes(commands, exact, generations, Seal(), lambda _: Quota(3, 2**20), lambda: 1e9)
    sweep = Sweep(commands, generations, ledger, Seal())

    async def is_there(tenant: str, name: object) -> bool:
        return (await exact.get(Question(tenant, SCOPE), digest(name), 5)).entry is not None

    async def fill(tenant: str, name: object) -> bool:
        standing = await generations.establish(Question(tenant, SCOPE), Place(), 5)
        answer = CacheFill(
            request_id="r",
            tenant=tenant,
            digest=digest(name),
            answer=ANSWER,
            ttl_s=60,
            scope=SCOPE,
            generation=Token(standing.number).packed(),
        )
        return await writes.fill(answer, QuestionVector("m-3", b"\0" * 12), ttl_s=60, limit=2**20)

    for tenant in TENANTS:
        for number in range(4):
            assert await fill(tenant, number)
        assert [await is_there(tenant, number) for number in range(4)].count(True) == 3
        assert (await ledger.size(tenant))[0] == 3
        counts.add(tenant, ["num_lookups"])
    await counts.flush()
    assert [await counts.of(tenant) for tenant in TENANTS] == [{"num_lookups": 1}] * len(TENANTS)

    one, other, *_ = TENANTS
    token = Token((await generations.standing(Question(one, SCOPE), 5)).number).packed()
    alias = CacheAlias(tenant=one, digest=digest("asked"), target=digest(3), generation=token, scope=SCOPE)
    assert await writes.alias(alias, ttl_s=60)
    assert await is_there(one, "asked")

    await generations.invalidate(Question(one, SCOPE))
    assert not await is_there(one, 3)
    assert not await writes.alias(alias, ttl_s=60)
    num_erased, num_left = await sweep.run(one)
    assert (num_erased > 3, num_left) == (True, 0)
    assert await ledger.size(one) == (0, 0)
    assert await is_there(other, 3)

    await generations.forget_all()
    assert not any([await is_there(tenant, 3) for tenant in TENANTS])


def url_of(commands: Commands) -> str:
    client: Any = commands.client
    node = client.get_primaries()[0]
    return f"redis://{node.host}:{node.port}"


class Tenants:
    """The clients of several tenants, which lie on all nodes."""

    def __init__(self, commands: Commands, bus: Bus, region: str) -> None:
        client: Any = commands.client
        self.cluster = client
        self.clients = [Client(bus, region, f"{region}-{name}") for name in TENANTS]
        nodes = {self.node_of(each).name for each in self.clients}
        assert len(nodes) == len(client.get_primaries()) == NUM_NODES

    def node_of(self, client: Client) -> Any:
        return self.cluster.get_node_from_key(f"{{{client.tenant}}}")

    async def similarly_answered(self, client: Client) -> bool:
        reply = await client.look_up(digest(SAME), scope=SCOPE, question=SAME)
        return isinstance(reply, CacheHit) and reply.tier == "semantic"


@needs_engine
async def test_service_finds_a_paraphrase_of_each_tenant_on_its_node(
    commands: Commands, nats_server: Server, bus: Bus, region: str
) -> None:
    """The real embedder, and the whole service on a cluster: exact, semantic, opposite, alias, erasure."""
    config = CacheConfig(embedder="minilm", redis_cluster=True, max_lookup_ms=5_000, probe_interval_s=0.05)
    embedder = open_embedder(config)
    tenants = Tenants(commands, bus, region)
    async with running_cache(
        nats_server, url_of(commands), region, config=config, embedder=embedder
    ) as runtime:
        assert runtime.detail == ""
        for client in tenants.clients[1:]:
            await client.stored(digest(STORED), scope=SCOPE, question=STORED)

        assert [await tenants.similarly_answered(client) for client in tenants.clients] == [
            False,
            *[True] * (len(TENANTS) - 1),
        ]
        for client in tenants.clients:
            opposite = await client.look_up(digest(OPPOSITE), scope=SCOPE, question=OPPOSITE)
            assert isinstance(opposite, CacheMiss)
            assert (opposite.near is not None) == (client is not tenants.clients[0])

        one, other = tenants.clients[1:3]
        generation = await one.generation(digest("judged"), scope=SCOPE)
        await one.write(
            CacheAlias(
                tenant=one.tenant,
                digest=digest("judged"),
                target=digest(STORED),
                generation=generation,
                scope=SCOPE,
            )
        )
        await one.reply_until(digest("judged"), lambda reply: isinstance(reply, CacheHit))
        erased = await one.invalidate(erase=True)
        assert (erased.error, erased.num_erased, erased.num_left) == ("", 4, 0)
        assert not await tenants.similarly_answered(one)
        assert await tenants.similarly_answered(other)


@needs_engine
async def test_index_that_one_node_lost_is_made_again_there(
    commands: Commands, nats_server: Server, bus: Bus, region: str
) -> None:
    config = CacheConfig(redis_cluster=True, max_lookup_ms=5_000, probe_interval_s=0.05)
    embedder = SteeredEmbedder()
    embedder.default_degrees = 10.0
    tenants = Tenants(commands, bus, region)
    async with running_cache(
        nats_server, url_of(commands), region, config=config, embedder=bounded(embedder)
    ):
        for client in tenants.clients:
            await client.stored(digest(STORED), scope=SCOPE, question=STORED)
            assert await tenants.similarly_answered(client)
        node = tenants.node_of(tenants.clients[0])
        [name] = await tenants.cluster.execute_command("FT._LIST", target_nodes=node)
        await tenants.cluster.execute_command("FT.DROPINDEX", name, target_nodes=node)

        async with asyncio.timeout(PATIENCE_S):
            for client in tenants.clients:
                while not await tenants.similarly_answered(client):
                    pass
        assert await tenants.cluster.execute_command("FT._LIST", target_nodes=node) == [name]


@needs_engine
async def test_node_that_dies_costs_hits_within_the_allotment_and_comes_back(
    commands: Commands, cluster: tuple[Any, list[Server]], nats_server: Server, bus: Bus, region: str
) -> None:
    config = CacheConfig(redis_cluster=True, max_lookup_ms=5_000, probe_interval_s=0.05)
    embedder = SteeredEmbedder()
    embedder.default_degrees = 10.0
    tenants = Tenants(commands, bus, region)
    lost = tenants.clients[0]
    [server] = [each for each in cluster[1] if each.port == tenants.node_of(lost).port]
    async with running_cache(
        nats_server, url_of(commands), region, config=config, embedder=bounded(embedder)
    ):
        for client in tenants.clients:
            await client.stored(digest(STORED), scope=SCOPE, question=STORED)
        server.kill()
        for _ in range(3):
            for client in tenants.clients:
                reply = await client.look_up(digest(STORED), scope=SCOPE, question=STORED, allotted_ms=50)
                assert isinstance(reply, CacheHit) or reply.reason in ("unavailable", "absent")
                assert reply.spent_ms < 50 + SLACK_MS
        server.start()

        async with asyncio.timeout(PATIENCE_S):
            for client in tenants.clients:  # the node keeps nothing on disk: its tenants begin anew
                while not await tenants.similarly_answered(client):
                    generation = await client.generation(digest(STORED), scope=SCOPE)
                    await client.fill(digest(STORED), scope=SCOPE, question=STORED, generation=generation)

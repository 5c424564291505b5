"""The store on a real Redis Cluster: each tenant in one slot, tenants over all nodes."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cache_service import ANSWER
from tests.integration.redis_cluster import redis_cluster
from tests.servers import uses_containers

from sub100_cache.breaker import Breaker
from sub100_cache.store.commands import Commands
from sub100_cache.store.counts import Counts
from sub100_cache.store.exact import ExactTier
from sub100_cache.store.generations import Generations, Question, Token
from sub100_cache.store.ledger import Ledger, Quota
from sub100_cache.store.sweep import Sweep
from sub100_cache.store.writes import QuestionVector, Writes
from sub100_proto.cache import CacheAlias, CacheFill

pytestmark = pytest.mark.skipif(uses_containers(), reason="nodes of a cluster must reach each other")

SCOPE = hashlib.sha256(b"a scope").digest()
TENANTS = [f"tenant-{number}" for number in range(8)]


def digest(name: object) -> bytes:
    return hashlib.sha256(str(name).encode()).digest()


@pytest.fixture
async def commands(tmp_path: Path) -> AsyncIterator[Commands]:
    async with redis_cluster(tmp_path) as cluster:
        client: Any = cluster
        commands = Commands(client, Breaker(), 8)
        await commands.probe()
        yield commands


async def test_store_fills_evicts_invalidates_and_erases_on_a_cluster(commands: Commands) -> None:
    generations, ledger, counts = Generations(commands, 60), Ledger(commands), Counts(commands, 60)
    exact = ExactTier(commands, generations)
    writes = Writes(commands, exact, generations, lambda _: Quota(3, 2**20), lambda: 1e9)
    sweep = Sweep(commands, generations, ledger)

    async def is_there(tenant: str, name: object) -> bool:
        return (await exact.get(Question(tenant, SCOPE), digest(name), 5)).entry is not None

    async def fill(tenant: str, name: object) -> bool:
        standing = await generations.establish(Question(tenant, SCOPE), 0, 5)
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
    assert await writes.alias(alias)
    assert await is_there(one, "asked")

    await generations.invalidate(Question(one, SCOPE))
    assert not await is_there(one, 3)
    assert not await writes.alias(alias)
    num_erased, num_left = await sweep.run(one)
    assert (num_erased > 3, num_left) == (True, 0)
    assert await ledger.size(one) == (0, 0)
    assert await is_there(other, 3)

    await generations.forget_all()
    assert not any([await is_there(tenant, 3) for tenant in TENANTS])

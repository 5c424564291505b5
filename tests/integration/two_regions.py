"""Two regions, ``eu`` and ``us``, each with its own Redis, on one bus."""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import AsyncIterator, Callable

from tests.integration.bus_link import Link
from tests.integration.cache_service import ANSWER, Client, running_cache
from tests.patience import PATIENCE_S
from tests.servers import Server

from sub100_cache.config import CacheConfig
from sub100_cache.store.generations import Token, unpack
from sub100_cache.tenants import TenantRules
from sub100_proto import codec, subjects
from sub100_proto.cache import (
    CacheAlias,
    CacheAliasReplica,
    CacheFill,
    CacheHit,
    CacheMiss,
    CacheReplica,
    CacheReply,
)
from sub100_shared.bus import Bus

SCOPE, OTHER_SCOPE = (hashlib.sha256(name).digest() for name in (b"a scope", b"another scope"))
CONFIG = CacheConfig(
    log="jetstream", max_lookup_ms=5_000, probe_interval_s=0.05, max_staleness_s=2, counts_interval_s=0.05
)


def digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def is_hit(reply: CacheReply) -> bool:
    return isinstance(reply, CacheHit)


def is_absent(reply: CacheReply) -> bool:
    return isinstance(reply, CacheMiss) and reply.reason == "absent"


async def until(client: Client, name: str, scope: bytes, is_so: Callable[[CacheReply], bool]) -> CacheReply:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so(reply := await client.look_up(digest(name), scope=scope)):
            pass
    return reply


class World:
    """``eu`` and ``us`` as their clients see them; ``us_link`` is the way of the service in us to the bus."""

    def __init__(self, bus: Bus, tenant: str, us_link: Link, us_redis: Server) -> None:
        self.bus = bus
        self.eu = Client(bus, "eu", tenant)
        self.us = Client(bus, "us", tenant)
        self.us_link = us_link
        self.us_redis = us_redis
        self.tenant = tenant

    @contextlib.asynccontextmanager
    async def running_us(self, config: CacheConfig = CONFIG) -> AsyncIterator[None]:
        rules = {self.tenant: TenantRules(regions=frozenset({"eu", "us"}))}
        async with running_cache(self.us_link.url, self.us_redis.url, "us", config=config, rules=rules):
            await until(self.us, "in contact", b"", is_absent)
            yield

    async def send_replica(
        self, name: str, generation: bytes, *, origin: str = "eu", age_s: float = 0.0, tenant: str = ""
    ) -> None:
        fill = CacheFill(
            request_id="r",
            tenant=tenant or self.tenant,
            digest=digest(name),
            answer=ANSWER,
            ttl_s=60,
            scope=SCOPE,
            generation=generation,
        )
        replica = CacheReplica(origin=origin, stored_unix_s=time.time() - age_s, fill=fill)
        await self.bus.publish(subjects.cache_replica("us"), codec.encode(replica))

    def alias(self, name: str, target: str, generation: bytes, *, tenant: str = "") -> CacheAlias:
        return CacheAlias(
            tenant=tenant or self.tenant,
            digest=digest(name),
            target=digest(target),
            generation=generation,
            scope=SCOPE,
        )

    async def send_alias(self, alias: CacheAlias, *, origin: str = "eu", age_s: float = 0.0) -> None:
        replica = CacheAliasReplica(origin=origin, judged_unix_s=time.time() - age_s, alias=alias)
        await self.bus.publish(subjects.cache_replica("us"), codec.encode(replica))


def position(reply: CacheReply) -> int:
    return (unpack(reply.generation) or Token(0)).place.position

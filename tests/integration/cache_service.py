"""A cache service in the test's own process, on real NATS and Redis, and what ingress would send it."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable

import msgspec
from tests.patience import PATIENCE_S
from tests.servers import Server

from sub100_cache.composition import compose
from sub100_cache.config import CacheConfig
from sub100_cache.embedders.bounded import BoundedEmbedder
from sub100_cache.store.commands import open_commands
from sub100_cache.store.ledger import Quota
from sub100_cache.tenants import TenantRules, Tenants
from sub100_proto import codec, subjects
from sub100_proto.budget import Budget
from sub100_proto.cache import (
    CacheAlias,
    CachedAnswer,
    CacheFill,
    CacheHit,
    CacheInvalidate,
    CacheInvalidated,
    CacheLookup,
    CacheObserved,
    CacheReply,
    CacheStats,
    CacheStatsQuery,
)
from sub100_shared.bus import Bus
from sub100_shared.clock import monotonic_ms
from sub100_shared.config import Common
from sub100_shared.lifecycle import Runtime
from sub100_shared.telemetry import Telemetry

FILL_S = 0.5
ANSWER = CachedAnswer(
    model="m", pieces=("Hel", "lo 👋"), finish_reason="stop", num_prompt_tokens=7, num_completion_tokens=3
)


class Client:
    """Asks and fills as ingress does; each test has its own tenant."""

    def __init__(self, bus: Bus, region: str, tenant: str) -> None:
        self._bus = bus
        self.region = region
        self.tenant = tenant

    async def look_up(
        self,
        digest: bytes,
        *,
        tenant: str = "",
        allotted_ms: float = 5000.0,
        headers: dict[str, str] | None = None,
        scope: bytes = b"",
        question: str = "",
        revision: str = "",
        threshold: float = 0.0,
        max_age_s: float | None = None,
    ) -> CacheReply:
        lookup = CacheLookup(
            request_id="r1",
            tenant=tenant or self.tenant,
            digest=digest,
            budget=Budget(total_ms=100, remaining_ms=80, allotted_ms=allotted_ms),
            scope=scope,
            question=question,
            revision=revision,
            threshold=threshold,
            max_age_s=max_age_s,
        )
        return await self.ask(codec.encode(lookup), headers)

    async def ask(self, payload: bytes, headers: dict[str, str] | None = None) -> CacheReply:
        msg = await self._bus.request(
            subjects.cache_lookup(self.region), payload, timeout_s=PATIENCE_S, headers=headers
        )
        return codec.decode_cache_reply(msg.data)

    async def fill(
        self,
        digest: bytes,
        answer: CachedAnswer = ANSWER,
        *,
        ttl_s: int = 60,
        scope: bytes = b"",
        question: str = "",
        revision: str = "",
        generation: bytes | None = None,
    ) -> None:
        """``generation`` None: that of a look-up made for it."""
        if generation is None:
            generation = await self.generation(digest, scope=scope, revision=revision)
        fill = CacheFill(
            request_id="r1",
            tenant=self.tenant,
            digest=digest,
            answer=answer,
            ttl_s=ttl_s,
            scope=scope,
            question=question,
            revision=revision,
            generation=generation,
        )
        await self.write(fill)

    async def generation(self, digest: bytes, *, scope: bytes = b"", revision: str = "") -> bytes:
        """What a look-up captures."""
        reply = await self.look_up(digest, scope=scope, revision=revision)
        return reply.generation

    async def invalidate(
        self,
        *,
        tenant: str = "",
        scope: bytes = b"",
        revision: str = "",
        before_unix_s: float = 0.0,
        erase: bool = False,
    ) -> CacheInvalidated:
        command = CacheInvalidate(
            tenant=tenant or self.tenant,
            scope=scope,
            revision=revision,
            before_unix_s=before_unix_s,
            erase=erase,
        )
        reply = await self._command(command)
        assert isinstance(reply, CacheInvalidated)
        return reply

    async def stats(self) -> CacheStats:
        reply = await self._command(CacheStatsQuery(tenant=self.tenant))
        assert isinstance(reply, CacheStats)
        return reply

    async def _command(self, command: CacheInvalidate | CacheStatsQuery) -> CacheInvalidated | CacheStats:
        of = subjects.cache_stats if isinstance(command, CacheStatsQuery) else subjects.cache_admin
        msg = await self._bus.request(of(self.region), codec.encode(command), timeout_s=PATIENCE_S)
        return codec.decode_cache_admin_reply(msg.data)

    async def write(self, write: CacheFill | CacheAlias | CacheObserved) -> None:
        await self._bus.publish(subjects.cache_fill(self.region), codec.encode(write))

    async def reply_until(self, digest: bytes, is_so: Callable[[CacheReply], bool]) -> CacheReply:
        """Ask until the reply is as wanted."""
        async with asyncio.timeout(PATIENCE_S):
            while not is_so(reply := await self.look_up(digest)):
                pass
        return reply

    async def stored(
        self,
        digest: bytes,
        answer: CachedAnswer = ANSWER,
        *,
        ttl_s: int = 60,
        scope: bytes = b"",
        question: str = "",
        revision: str = "",
    ) -> CacheHit:
        """Fill, and wait until it is found. A fill that Redis could not take is sent again."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                await self.fill(
                    digest, answer, ttl_s=ttl_s, scope=scope, question=question, revision=revision
                )
                sent_s = time.monotonic()
                while time.monotonic() < sent_s + FILL_S:
                    reply = await self.look_up(digest)
                    if isinstance(reply, CacheHit):
                        return reply


@contextlib.asynccontextmanager
async def running_cache(
    nats: Server | str,
    redis_url: str,
    region: str,
    *,
    config: CacheConfig | None = None,
    wall_clock: Callable[[], float] = time.time,
    telemetry: Telemetry | None = None,
    embedder: BoundedEmbedder | None = None,
    rules: dict[str, TenantRules] | None = None,
    secret_file: str = "",
) -> AsyncIterator[Runtime]:
    """Started as the lifecycle starts it and ended in the lifecycle's order. ``nats``: or a way to it."""
    config = config or CacheConfig(probe_interval_s=0.05, max_lookup_ms=5_000)
    bus = await Bus.connect(nats if isinstance(nats, str) else nats.url, name="cache")
    common = Common(region=region, redis_url=redis_url, instance=f"cache-{secrets.token_hex(4)}")
    common = msgspec.structs.replace(common, secret_file=secret_file)
    telemetry = telemetry or Telemetry.create("cache", common.instance, region, {})
    runtime = Runtime("cache", common, bus, telemetry)
    commands = open_commands(
        redis_url, max_connections=config.max_connections, is_cluster=config.redis_cluster
    )
    tenants = Tenants(rules or {}, Quota(config.max_tenant_entries, config.max_tenant_bytes))
    service = compose(runtime, config, commands, embedder, tenants, monotonic_ms, wall_clock)
    try:
        await service.start()
        yield runtime
    finally:
        await service.drain(5)
        await bus.stop_receiving()
        await service.stop()
        await service.stop()
        await runtime.cancel_tasks()
        await bus.close(5)

"""The cache program: look-ups and fills from the bus, entries in the store."""

import asyncio
import logging
from typing import Final

import msgspec

from sub100_proto import codec, subjects
from sub100_proto.cache import (
    CacheAlias,
    CacheFill,
    CacheHit,
    CacheInvalidate,
    CacheInvalidated,
    CacheMiss,
    CacheObserved,
    CacheReply,
    CacheStats,
    CacheStatsQuery,
)
from sub100_shared import catalog, semconv
from sub100_shared.bus import Incoming
from sub100_shared.clock import Clock
from sub100_shared.lifecycle import Runtime
from sub100_shared.telemetry import Span, SpanKind, extract

from .config import CacheConfig
from .evidence import Evidence
from .fills import Fills
from .follower import Follower
from .freshness import Freshness
from .invalidations import Invalidations
from .lookups import Lookups
from .semantic import SemanticTier
from .store.commands import Commands, StoreUnavailable
from .upkeep import Upkeep

_log = logging.getLogger(__name__)

QUEUE: Final = "cache"
MAX_INVALIDATIONS: Final = 8
MAX_STATS: Final = 16
MIN_LOOKUP_MS: Final = 1.0
"""Less than this is no time for a look-up at all."""


class CacheService:
    """See sub100_shared.lifecycle for the contract. Without Redis it is ready, says so, and misses."""

    def __init__(
        self,
        runtime: Runtime,
        config: CacheConfig,
        commands: Commands,
        lookups: Lookups,
        fills: Fills,
        freshness: Freshness,
        follower: Follower | None,
        invalidations: Invalidations,
        evidence: Evidence,
        upkeep: Upkeep,
        semantic: SemanticTier | None,
        clock: Clock,
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._commands = commands
        self._lookups = lookups
        self._fills = fills
        self._freshness = freshness
        self._follower = follower
        self._invalidations = invalidations
        self._evidence = evidence
        self._upkeep = upkeep
        self._semantic = semantic
        self._clock = clock
        self._told = ""
        self._duration = runtime.metrics.histogram(catalog.CACHE_LOOKUP_DURATION)
        runtime.metrics.observe(catalog.CACHE_STORE_UP, lambda: not commands.breaker.is_open)
        runtime.metrics.observe(catalog.CACHE_CUT_OFF, lambda: freshness.is_cut_off)
        runtime.metrics.observe(catalog.CACHE_REFUSED, lambda: evidence.num_refused)
        runtime.metrics.observe(catalog.CACHE_SHADOW, lambda: evidence.num_shadow)

    async def start(self) -> None:
        bus, region, config = self._runtime.bus, self._runtime.region, self._config
        await self._probe()
        await self._runtime.serve_shared(
            subjects.cache_lookup(region),
            self._on_lookup,
            queue=QUEUE,
            max_inflight=config.max_lookups,
            when_full=lambda _: codec.encode(CacheMiss(reason="unavailable")),
        )
        await self._runtime.serve_shared(
            subjects.cache_fill(region), self._on_write, queue=QUEUE, max_inflight=config.max_fills
        )
        await bus.serve(
            subjects.cache_admin(region),
            self._on_admin,
            queue=QUEUE,
            max_inflight=MAX_INVALIDATIONS,
            when_full=lambda _: codec.encode(CacheInvalidated(error="busy: nothing was done, ask again")),
        )
        await self._runtime.serve_shared(
            subjects.cache_stats(region),
            self._on_stats,
            queue=QUEUE,
            max_inflight=MAX_STATS,
            when_full=lambda _: codec.encode(CacheStats(error="busy")),
        )
        if self._follower is not None:
            follower = self._follower
            await bus.serve(
                subjects.cache_replica(region), self._on_replica, queue=QUEUE, max_inflight=config.max_fills
            )
            await bus.listen(subjects.cache_log_all(), lambda _: follower.wake())
            self._runtime.spawn(follower.run(), "follower")
        self._told = self._detail()
        self._runtime.set_state("ready", self._told)
        self._runtime.spawn(self._heal(), "heal")
        self._runtime.spawn(self._upkeep.run(), "upkeep")

    async def drain(self, timeout_s: float) -> None:
        """Nothing runs longer than its allotment."""

    async def stop(self) -> None:
        if self._semantic is not None:
            await self._semantic.embedder.close()
        await self._upkeep.stop()
        await self._commands.close()

    async def _on_lookup(self, msg: Incoming) -> bytes | None:
        """CacheLookup -> CacheHit or CacheMiss; an unreadable one is a miss too, so that nobody waits."""
        start_ms = self._clock()
        span = self._runtime.telemetry.start(semconv.CACHE_SERVE, extract(msg.headers), kind=SpanKind.SERVER)
        try:
            reply = await self._look_up(msg.data, span)
            spent_ms = self._clock() - start_ms
            self._duration.record(spent_ms / 1e3, _outcome(reply))
            _describe(span, reply, spent_ms)
            return codec.encode(msgspec.structs.replace(reply, spent_ms=spent_ms))
        finally:
            span.end()

    async def _look_up(self, data: bytes, span: Span) -> CacheReply:
        try:
            lookup = codec.decode_cache_lookup(data)
            if span.is_recording():
                span.set_attribute(semconv.REQUEST_ID, lookup.request_id)
                span.set_attribute(semconv.HOP, semconv.HOP_CACHE)
            allotted_ms = min(self._config.max_lookup_ms, max(MIN_LOOKUP_MS, lookup.budget.allotted_ms))
            reply = await self._lookups.reply(lookup, allotted_ms)
            self._evidence.replied(lookup.tenant, reply)
        except (msgspec.MsgspecError, ValueError) as error:
            _log.error("unreadable look-up", extra={"error": type(error).__name__})
            return CacheMiss(reason="unreadable")
        if isinstance(reply, CacheMiss) and reply.reason == "unreadable":
            _log.warning("unreadable entry deleted", extra={"request_id": lookup.request_id})
        return reply

    async def _on_write(self, msg: Incoming) -> None:
        """What cannot be stored is dropped: the next request fills again, the next judgement aliases."""
        try:
            write = codec.decode_cache_write(msg.data)
            match write:
                case CacheFill():
                    await self._fills.fill(write)
                case CacheAlias():
                    await self._fills.alias(write)
                case CacheObserved():
                    self._evidence.observed(write)
        except StoreUnavailable as error:
            _log.debug("write dropped", extra={"error": str(error)})
        except (msgspec.MsgspecError, ValueError) as error:
            _log.error("unreadable write", extra={"error": type(error).__name__})

    async def _on_replica(self, msg: Incoming) -> None:
        try:
            await self._fills.replica(codec.decode_cache_replica(msg.data))
        except StoreUnavailable as error:
            _log.debug("replica dropped", extra={"error": str(error)})
        except (msgspec.MsgspecError, ValueError) as error:
            _log.error("unreadable replica", extra={"error": type(error).__name__})

    async def _on_admin(self, msg: Incoming) -> bytes:
        try:
            command = codec.decode_cache_admin(msg.data)
            if isinstance(command, CacheInvalidate):
                return codec.encode(await self._invalidations.command(command))
            return codec.encode(CacheInvalidated(error="counts are told on a subject of their own"))
        except (msgspec.MsgspecError, ValueError) as error:
            return codec.encode(CacheInvalidated(error=f"unreadable: {type(error).__name__}"))

    async def _on_stats(self, msg: Incoming) -> bytes:
        try:
            query = codec.decode_cache_admin(msg.data)
        except msgspec.MsgspecError as error:
            return codec.encode(CacheStats(error=f"unreadable: {type(error).__name__}"))
        if not isinstance(query, CacheStatsQuery):
            return codec.encode(CacheStats(error="only counts are told here"))
        return codec.encode(await self._evidence.of(query.tenant))

    async def _heal(self) -> None:
        """While something is not well, try whether it is again."""
        while True:
            await asyncio.sleep(self._config.probe_interval_s)
            await self._probe()

    async def _probe(self) -> None:
        """Asks only what is not known to be well."""
        self._tell_state()
        if self._commands.breaker.is_open:
            await self._commands.probe()
        if self._semantic is not None:
            if self._semantic.index.problem:
                await self._semantic.index.ensure()
            if self._semantic.embedder.breaker.is_open:
                await self._semantic.embedder.probe()
        self._tell_state()

    def _tell_state(self) -> None:
        if self._runtime.state == "ready" and self._detail() != self._told:
            self._told = self._detail()
            self._runtime.set_state("ready", self._told)

    def _detail(self) -> str:
        breaker = self._commands.breaker
        if breaker.is_open:
            return f"no Redis ({breaker.reason}): every look-up misses"
        if self._freshness.is_cut_off:
            return "no contact with the log of invalidations: every look-up misses"
        problem = self._semantic.problem() if self._semantic is not None else ""
        return f"no semantic tier ({problem})" if problem else ""


def _outcome(reply: CacheReply) -> str:
    return reply.tier if isinstance(reply, CacheHit) else reply.reason


def _describe(span: Span, reply: CacheReply, spent_ms: float) -> None:
    if not span.is_recording():
        return
    span.set_attribute(semconv.CACHE_OUTCOME, _outcome(reply))
    span.set_attribute(semconv.SPENT_MS, round(spent_ms, 3))
    if isinstance(reply, CacheHit):
        span.set_attribute(semconv.CACHE_AGE_S, round(reply.age_s, 1))

"""The cache program: look-ups and fills from the bus, entries in the store."""

import asyncio
import logging
from typing import Final

import msgspec

from sub100_proto import codec, subjects
from sub100_proto.cache import CacheFill, CacheHit, CacheMiss, CacheReply
from sub100_shared import semconv
from sub100_shared.bus import Incoming
from sub100_shared.clock import Clock
from sub100_shared.lifecycle import Runtime
from sub100_shared.telemetry import Span, SpanKind, extract

from .config import CacheConfig
from .entries import UnreadableEntry
from .store import Store, StoreUnavailable

_log = logging.getLogger(__name__)

QUEUE: Final = "cache"
TIER: Final = "exact"
MIN_LOOKUP_MS: Final = 1.0
"""Less than this is no time for a look-up at all."""

_FINISHED: Final = "stop"


class CacheService:
    """See sub100_shared.lifecycle for the contract. Without Redis it is ready, says so, and misses."""

    def __init__(self, runtime: Runtime, config: CacheConfig, store: Store, clock: Clock) -> None:
        self._runtime = runtime
        self._config = config
        self._store = store
        self._clock = clock

    async def start(self) -> None:
        bus, region, config = self._runtime.bus, self._runtime.region, self._config
        await self._store.probe()
        await bus.serve(
            subjects.cache_lookup(region),
            self._on_lookup,
            queue=QUEUE,
            max_inflight=config.max_lookups,
            when_full=lambda _: codec.encode(CacheMiss(reason="unavailable")),
        )
        await bus.serve(
            subjects.cache_fill(region), self._on_fill, queue=QUEUE, max_inflight=config.max_fills
        )
        self._runtime.set_state("ready", self._detail())
        self._runtime.spawn(self._tell_state(), "state")
        self._runtime.spawn(self._heal(), "heal")

    async def drain(self, timeout_s: float) -> None:
        """Nothing runs longer than its allotment."""

    async def stop(self) -> None:
        await self._store.close()

    async def _on_lookup(self, msg: Incoming) -> bytes | None:
        """CacheLookup -> CacheHit or CacheMiss; an unreadable one is a miss too, so that nobody waits."""
        start_ms = self._clock()
        span = self._runtime.telemetry.start(semconv.CACHE_SERVE, extract(msg.headers), kind=SpanKind.SERVER)
        try:
            reply = await self._look_up(msg.data, span)
            spent_ms = self._clock() - start_ms
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
            found = await self._store.get(lookup.tenant, lookup.digest, allotted_ms / 1e3)
        except StoreUnavailable:
            return CacheMiss(reason="unavailable")
        except UnreadableEntry:
            _log.warning("unreadable entry deleted")
            return CacheMiss(reason="unreadable")
        except (msgspec.MsgspecError, ValueError) as error:
            _log.error("unreadable look-up", extra={"error": str(error)})
            return CacheMiss(reason="unreadable")
        return CacheMiss() if found is None else CacheHit(answer=found.answer, tier=TIER, age_s=found.age_s)

    async def _on_fill(self, msg: Incoming) -> None:
        """Only whole answers enter; a fill that cannot be stored is dropped: the next request fills again."""
        try:
            fill = codec.decode_cache_write(msg.data)
            if not isinstance(fill, CacheFill):
                return
            if fill.ttl_s < 1 or fill.answer.finish_reason != _FINISHED:
                return
            is_stored = await self._store.put(
                fill.tenant,
                fill.digest,
                fill.answer,
                ttl_s=min(fill.ttl_s, self._config.max_ttl_s),
                limit=self._config.max_answer_bytes,
            )
            if not is_stored:
                _log.info("answer not stored", extra={"request_id": fill.request_id})
        except StoreUnavailable as error:
            _log.debug("fill dropped", extra={"error": str(error)})
        except (msgspec.MsgspecError, ValueError) as error:
            _log.error("unreadable fill", extra={"error": str(error)})

    async def _heal(self) -> None:
        """While the breaker is open, try whether Redis is back."""
        while True:
            if self._store.breaker.is_open:
                await self._store.probe()
            await asyncio.sleep(self._config.probe_interval_s)

    async def _tell_state(self) -> None:
        while True:
            await self._store.breaker.wait_changed()
            if self._runtime.state == "ready":
                self._runtime.set_state("ready", self._detail())

    def _detail(self) -> str:
        breaker = self._store.breaker
        return f"no Redis ({breaker.reason}): every look-up misses" if breaker.is_open else ""


def _describe(span: Span, reply: CacheReply, spent_ms: float) -> None:
    if not span.is_recording():
        return
    outcome = reply.tier if isinstance(reply, CacheHit) else reply.reason
    span.set_attribute(semconv.CACHE_OUTCOME, outcome)
    span.set_attribute(semconv.SPENT_MS, round(spent_ms, 3))
    if isinstance(reply, CacheHit):
        span.set_attribute(semconv.CACHE_AGE_S, round(reply.age_s, 1))

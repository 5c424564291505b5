"""The cache program: messages in, messages out, and the probe that brings a lost Redis back."""

import asyncio
import logging
import time
from typing import Final

import msgspec

from sub100_proto import codec, subjects
from sub100_proto.cache import CacheHit, CacheMiss
from sub100_shared import semconv
from sub100_shared.bus import Incoming
from sub100_shared.clock import Clock
from sub100_shared.config import ConfigError
from sub100_shared.lifecycle import Runtime
from sub100_shared.telemetry import Span, SpanKind, Telemetry, extract, fail

from .breaker import Breaker
from .config import CacheConfig
from .exact import ExactTier, WallClock
from .store import RedisStore, StoreUnavailable

_log = logging.getLogger(__name__)

QUEUE: Final = "cache"


class Handlers:
    """Look-ups and fills as they come from the bus."""

    def __init__(self, tier: ExactTier, telemetry: Telemetry, clock: Clock, config: CacheConfig) -> None:
        self._tier = tier
        self._telemetry = telemetry
        self._clock = clock
        self._max_lookup_ms = config.max_lookup_ms
        self._fill_timeout_s = config.fill_timeout_ms / 1e3

    async def lookup(self, msg: Incoming) -> bytes | None:
        """CacheLookup -> CacheHit or CacheMiss within its allotment; no answer if it is unreadable."""
        start_ms = self._clock()
        span = self._telemetry.start(semconv.CACHE_SERVE, extract(msg.headers), kind=SpanKind.SERVER)
        try:
            query = codec.decode_cache_lookup(msg.data)
            allotted_ms = query.budget.allotted_ms
            answer = await self._tier.lookup(query, timeout_s=min(allotted_ms, self._max_lookup_ms) / 1e3)
            answer = msgspec.structs.replace(answer, spent_ms=self._clock() - start_ms)
            if span.is_recording():
                span.set_attribute(semconv.REQUEST_ID, query.request_id)
                span.set_attribute(semconv.ALLOTTED_MS, round(allotted_ms, 3))
                _describe(span, answer)
            return codec.encode(answer)
        except msgspec.MsgspecError as error:
            fail(span, "invalid_type")
            _log.error("unreadable look-up", extra={"error": str(error)})
            return None
        finally:
            span.end()

    async def fill(self, msg: Incoming) -> None:
        """CacheFill; nobody waits for it."""
        try:
            fill = codec.decode_cache_fill(msg.data)
        except msgspec.MsgspecError as error:
            _log.error("unreadable fill", extra={"error": str(error)})
            return
        await self._tier.fill(fill, timeout_s=self._fill_timeout_s)

    @staticmethod
    def when_full(_: Incoming) -> bytes:
        return codec.encode(CacheMiss(reason="unavailable"))


def _describe(span: Span, answer: CacheHit | CacheMiss) -> None:
    span.set_attribute(semconv.SPENT_MS, round(answer.spent_ms, 3))
    if isinstance(answer, CacheHit):
        span.set_attribute(semconv.CACHE_OUTCOME, answer.tier)
        span.set_attribute(semconv.CACHE_AGE_S, round(answer.age_s, 1))
    else:
        span.set_attribute(semconv.CACHE_OUTCOME, answer.reason)


class CacheService:
    """See sub100_shared.lifecycle for the contract.

    Not ready before Redis has answered once, but look-ups are answered (with a miss) from the first
    moment on; a Redis that goes away later leaves the service ready, as it costs hits only.
    """

    def __init__(self, runtime: Runtime, config: CacheConfig, clock: Clock, now_s: WallClock) -> None:
        self._runtime = runtime
        self._config = config
        self._store = RedisStore(runtime.common.redis_url, max_connections=config.max_connections)
        self._breaker = Breaker(self._on_breaker)
        tier = ExactTier(
            self._store,
            self._breaker,
            now_s,
            max_ttl_s=config.max_ttl_s,
            max_entry_bytes=config.max_entry_bytes,
        )
        self._handlers = Handlers(tier, runtime.telemetry, clock, config)

    async def start(self) -> None:
        runtime, limit = self._runtime, self._config.max_requests
        region = runtime.region
        await runtime.bus.serve(
            subjects.cache_lookup(region),
            self._handlers.lookup,
            queue=QUEUE,
            max_inflight=limit,
            when_full=self._handlers.when_full,
        )
        await runtime.bus.serve(
            subjects.cache_fill(region), self._handlers.fill, queue=QUEUE, max_inflight=limit
        )
        runtime.set_state("starting", f"waiting for Redis at {self._store.address}")
        runtime.spawn(self._probe(), "probe")
        await self._breaker.wait_closed()
        runtime.set_state("ready")

    async def drain(self, timeout_s: float) -> None:
        """Nothing runs longer than a look-up."""

    async def stop(self) -> None:
        await self._store.close()

    async def _probe(self) -> None:
        """While the breaker is open, try Redis until it answers."""
        while True:
            await self._breaker.wait_open()
            try:
                await self._store.ping(timeout_s=self._config.probe_timeout_s)
            except StoreUnavailable as error:
                _log.debug("no answer from Redis", extra={"error": str(error)})
                await asyncio.sleep(self._config.probe_s)
            else:
                self._breaker.close()

    def _on_breaker(self, reason: str) -> None:
        if reason:
            _log.warning("cache off", extra={"reason": reason})
        else:
            _log.info("cache on")
        if self._runtime.state == "ready":
            self._runtime.set_state("ready", f"{reason}: every look-up misses" if reason else "")


def build(runtime: Runtime, config: CacheConfig, clock: Clock) -> CacheService:
    """The composition root; raises ConfigError for a Redis URL that is none."""
    try:
        return CacheService(runtime, config, clock, time.time)
    except ValueError as error:
        raise ConfigError(f"SUB100_REDIS_URL: {error}") from error

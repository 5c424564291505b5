"""The cache hop: ask, within the allotment, and never let the cache cost the request."""

import contextlib
import logging
from typing import Final

import msgspec

from sub100_proto import codec, subjects
from sub100_proto.budget import Budget
from sub100_proto.cache import CachedAnswer, CacheFill, CacheHit, CacheLookup
from sub100_shared import semconv
from sub100_shared.bus import Bus, BusUnavailable, NoResponders, PayloadTooLarge, ReplyTimeout
from sub100_shared.telemetry import SpanKind, Telemetry, inject

from .exchange import Exchange

_log = logging.getLogger(__name__)

MIN_ALLOTMENT_MS: Final = 2.0
_WARM_UP_MS: Final = 1000.0


class CacheClient:
    """Look-ups and fills of one region."""

    def __init__(self, bus: Bus, telemetry: Telemetry, *, region: str, ttl_s: int) -> None:
        self._bus = bus
        self._telemetry = telemetry
        self._lookup_subject = subjects.cache_lookup(region)
        self._fill_subject = subjects.cache_fill(region)
        self._ttl_s = ttl_s

    async def warm_up(self) -> None:
        """One look-up that nobody waits for: the first real one finds all connections made. Never raises."""
        query = CacheLookup(
            request_id="warm-up",
            tenant="warm-up",
            digest=bytes(32),
            budget=Budget(total_ms=_WARM_UP_MS, remaining_ms=_WARM_UP_MS, allotted_ms=_WARM_UP_MS),
        )
        with contextlib.suppress(NoResponders, ReplyTimeout, BusUnavailable):
            await self._bus.request(self._lookup_subject, codec.encode(query), timeout_s=_WARM_UP_MS / 1e3)

    async def lookup(self, ex: Exchange, digest: bytes) -> CacheHit | None:
        """A hit, or None for a miss, a slow cache and a dead one."""
        hop = ex.ledger.open(semconv.HOP_CACHE)
        span = self._telemetry.start(semconv.CACHE_LOOKUP, ex.span, kind=SpanKind.CLIENT)
        own_ms: float | None = None
        outcome = "unavailable"
        try:
            query = CacheLookup(
                request_id=ex.request_id,
                tenant=ex.tenant.name,
                digest=digest,
                budget=ex.ledger.budget_for(hop),
            )
            msg = await self._bus.request(
                self._lookup_subject,
                codec.encode(query),
                timeout_s=max(hop.allotted_ms, MIN_ALLOTMENT_MS) / 1e3,
                headers=inject(span),
            )
            reply = codec.decode_cache_reply(msg.data)
            own_ms = reply.spent_ms
            if isinstance(reply, CacheHit):
                outcome = reply.tier
                return reply
            outcome = reply.reason
        except (NoResponders, ReplyTimeout, BusUnavailable, PayloadTooLarge):
            return None
        except msgspec.MsgspecError as error:
            _log.error("unreadable cache reply", extra={"error": str(error)})
        finally:
            span.set_attribute(semconv.CACHE_OUTCOME, outcome)
            ex.close_hop(hop, span, own_ms)
        return None

    async def fill(self, ex: Exchange, digest: bytes) -> None:
        """Offer a finished answer. Only ``stop`` answers: never cut, failed or cancelled ones."""
        if ex.finish_reason != "stop" or ex.code:
            return
        answer = CachedAnswer(
            model=ex.request.model,
            pieces=tuple(ex.pieces),
            finish_reason=ex.finish_reason,
            num_prompt_tokens=ex.num_prompt_tokens,
            num_completion_tokens=ex.num_completion_tokens,
        )
        fill = CacheFill(
            request_id=ex.request_id,
            tenant=ex.tenant.name,
            digest=digest,
            answer=answer,
            ttl_s=self._ttl_s,
        )
        try:
            await self._bus.publish(self._fill_subject, codec.encode(fill), headers=inject(ex.span))
        except (BusUnavailable, PayloadTooLarge) as error:
            _log.debug("fill not sent", extra={"error": str(error)})

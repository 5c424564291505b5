"""The cache hop: ask, within the allotment, offer what was answered, never cost the request."""

import contextlib
import logging
from typing import Final

import msgspec

from sub100_proto import codec, subjects
from sub100_proto.budget import Budget
from sub100_proto.cache import (
    CacheAlias,
    CachedAnswer,
    CacheFill,
    CacheHit,
    CacheLookup,
    CacheMiss,
    CacheObserved,
    CacheReply,
    CacheStats,
    CacheStatsQuery,
)
from sub100_shared import semconv
from sub100_shared.bus import Bus, BusUnavailable, NoResponders, PayloadTooLarge, ReplyTimeout
from sub100_shared.clock import Clock
from sub100_shared.errors import Refused
from sub100_shared.telemetry import Span, SpanKind, Telemetry, inject

from .absence import Absence
from .asking import Asker
from .cache_control import CacheControl
from .cache_key import CacheKey
from .exchange import Exchange
from .lateness import Lateness
from .replicas import ANY, Replicas

_log = logging.getLogger(__name__)

MIN_ALLOTMENT_MS: Final = 2.0
STATS_TIMEOUT_S: Final = 2.0
_REPLY_GRACE_MS: Final = 20.0
"""Nobody waits for it: the dispatch runs beside. But a miss that took all of its allotment still brings the
generation without which its answer could not be kept."""
_WARM_UP_MS: Final = 1000.0
_UNAVAILABLE: Final = CacheMiss(reason="unavailable")
_AWAY: Final = frozenset({"unavailable", "cut_off"})
"""Reasons for which no question at all is answered."""


class CacheClient:
    """Look-ups and fills of one region."""

    def __init__(
        self,
        bus: Bus,
        telemetry: Telemetry,
        absence: Absence,
        replicas: Replicas,
        clock: Clock,
        *,
        region: str,
        ttl_s: int,
    ) -> None:
        self._bus = bus
        self._telemetry = telemetry
        self._absence = absence
        self._replicas = replicas
        self._lookups = Asker(bus, replicas, subjects.cache_lookup(region), clock, Lateness())
        self._stats = Asker(bus, replicas, subjects.cache_stats(region), clock, Lateness())
        self._fill_subject = subjects.cache_fill(region)
        self._ttl_s = ttl_s

    async def start(self) -> None:
        await self._lookups.start()
        await self._stats.start()

    async def warm_up(self) -> None:
        """One look-up that nobody waits for: the first real one finds all connections made. Never raises."""
        query = CacheLookup(
            request_id="warm-up",
            tenant="warm-up",
            digest=bytes(32),
            budget=Budget(total_ms=_WARM_UP_MS, remaining_ms=_WARM_UP_MS, allotted_ms=_WARM_UP_MS),
        )
        with contextlib.suppress(NoResponders, ReplyTimeout, BusUnavailable):
            await self._lookups.ask(lambda _: codec.encode(query), timeout_s=_WARM_UP_MS / 1e3)

    async def lookup(self, ex: Exchange, key: CacheKey) -> CacheReply:
        """A hit that the request may use, or a miss; a slow or dead cache is one of reason ``unavailable``.

        Never raises."""
        if self._absence.is_known(ex.tenant.name):
            ex.cache_outcome = "unavailable"
            return _UNAVAILABLE
        control = ex.cache_control
        hop = ex.ledger.open(semconv.HOP_CACHE)
        span = self._telemetry.start(semconv.CACHE_LOOKUP, ex.span, kind=SpanKind.CLIENT)
        own_ms: float | None = None
        is_away: bool | None = None
        outcome = "unavailable"
        try:
            query = CacheLookup(
                request_id=ex.request_id,
                tenant=ex.tenant.name,
                digest=key.digest,
                budget=ex.ledger.budget_for(hop),
                scope=key.scope,
                question=key.question,
                revision=key.revision,
                threshold=ex.tenant.threshold,
                max_age_s=control.max_age_s if control.may_read else 0,
            )
            answer = await self._lookups.ask(
                lambda _: codec.encode(query),
                timeout_s=(max(hop.allotted_ms, MIN_ALLOTMENT_MS) + _REPLY_GRACE_MS) / 1e3,
                headers=inject(span),
            )
            reply = codec.decode_cache_reply(answer.data)
            own_ms = reply.spent_ms
            is_away = isinstance(reply, CacheMiss) and reply.reason in _AWAY
            if isinstance(reply, CacheHit) and not _is_usable(reply, control):
                reply = CacheMiss(reason="stale", generation=reply.generation)
            outcome = reply.tier if isinstance(reply, CacheHit) else reply.reason
            return reply
        except NoResponders:
            is_away = True
            return _UNAVAILABLE
        except (ReplyTimeout, BusUnavailable, PayloadTooLarge):
            return _UNAVAILABLE
        except msgspec.MsgspecError as error:
            _log.error("unreadable cache reply", extra={"error": str(error)})
        finally:
            if is_away is not None:
                self._absence.learn(ex.tenant.name, is_away=is_away)
            ex.cache_outcome = outcome
            span.set_attribute(semconv.CACHE_OUTCOME, outcome)
            ex.close_hop(hop, span, own_ms)
        return _UNAVAILABLE

    async def fill(self, ex: Exchange, key: CacheKey, generation: bytes) -> None:
        """Offer a finished answer. Only ``stop`` answers: never cut, failed or cancelled ones, nor an empty
        one, unless the client's own stop strings may have emptied it.

        ``generation`` is the look-up's; without one nothing would be written."""
        if not generation or ex.finish_reason != "stop" or ex.code:
            return
        if not (ex.pieces or ex.request.stops):
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
            digest=key.digest,
            answer=answer,
            ttl_s=ex.tenant.ttl_s or self._ttl_s,
            scope=key.scope,
            question=key.question,
            revision=key.revision,
            generation=generation,
        )
        await self._write(fill, ex.span)

    async def observe(self, ex: Exchange, hit: CacheHit, *, agreed: bool) -> None:
        """Shadow mode: tell what the hit would have said against what the model said."""
        observed = CacheObserved(
            tenant=ex.tenant.name, tier=hit.tier, agreed=agreed, similarity=hit.similarity
        )
        await self._write(observed, ex.span)

    async def alias(self, alias: CacheAlias) -> None:
        await self._write(alias, None)

    async def stats(self, tenant: str) -> CacheStats:
        """A tenant's own counts; raises Refused ``cache_unavailable``, within STATS_TIMEOUT_S."""
        query = codec.encode(CacheStatsQuery(tenant=tenant))
        try:
            answer = await self._stats.ask(lambda _: query, timeout_s=STATS_TIMEOUT_S)
            reply = codec.decode_cache_admin_reply(answer.data)
        except (NoResponders, ReplyTimeout, msgspec.MsgspecError) as error:
            raise Refused("cache_unavailable", "the cache does not answer") from error
        if not isinstance(reply, CacheStats) or reply.error:
            raise Refused("cache_unavailable", "the cache has no counts at the moment")
        return reply

    async def _write(self, message: CacheFill | CacheAlias | CacheObserved, span: Span | None) -> None:
        """Never raises: what is lost here comes again."""
        try:
            await self._bus.publish(
                subjects.of_replica(self._fill_subject, self._replicas.choose() or ANY),
                codec.encode(message),
                headers=None if span is None else inject(span),
            )
        except (BusUnavailable, PayloadTooLarge) as error:
            _log.debug("not sent to the cache", extra={"error": str(error)})


def _is_usable(hit: CacheHit, control: CacheControl) -> bool:
    """What the cache was told already; a cache that knows less than we do cannot make us break a promise."""
    return control.may_read and (control.max_age_s is None or hit.age_s <= control.max_age_s)

"""Cacheable requests: a look-up beside the dispatch, one generation for equal questions, a fill at its end.

::

    join a flight of the same key, or start one:
        look-up leaves --> (lead) --> prompt is tokenised --> placed, prefilled, decoded --> fill
              `-- a hit before the first token cancels the rest and is replayed to all readers
"""

import asyncio
import logging
from typing import Final

from sub100_proto.cache import CacheHit, CacheReply
from sub100_shared import semconv
from sub100_shared.errors import Evicted, Sub100Error

from .afterwards import Afterwards
from .cache_control import NO_LIMITS
from .cache_key import CacheKey
from .delivery import Responder
from .exchange import MISS, Exchange
from .fleet_view import FleetView
from .flight import Flight
from .generation import Generator
from .lead import Lead
from .lookup import CacheClient
from .overlap import UntilHit
from .placing import SchedulerClient
from .prepare import Preparer

_log = logging.getLogger(__name__)

MAX_RUNS: Final = 2
"""Generations that are begun for one flight: a lost one is tried again while others wait for it, too."""


class CachedAnswers:
    """Flights in the air, by digest; a digest covers the tenant, so that tenants never share one."""

    def __init__(
        self,
        cache: CacheClient,
        afterwards: Afterwards,
        preparer: Preparer,
        generator: Generator,
        scheduler: SchedulerClient,
        fleet: FleetView,
    ) -> None:
        self._cache = cache
        self._afterwards = afterwards
        self._preparer = preparer
        self._generator = generator
        self._scheduler = scheduler
        self._fleet = fleet
        self._lead = Lead()
        self._flights: dict[bytes, Flight] = {}

    async def answer(self, ex: Exchange, key: CacheKey, responder: Responder, body_bytes: int) -> None:
        """Deliver the whole answer. Raises as Generator.run does.

        A request that limits what may be read (``Cache-Control``) joins nobody and is joined by nobody.
        """
        if ex.cache_control is not NO_LIMITS:
            await self._start(ex, key, body_bytes).read(ex, responder)
            return
        flight = self._flights.get(key.digest)
        if flight is None or flight.is_over or not flight.num_readers:
            flight = self._flights[key.digest] = self._start(ex, key, body_bytes)
        await flight.read(ex, responder)

    def _start(self, ex: Exchange, key: CacheKey, body_bytes: int) -> Flight:
        flight = Flight(ex)
        flight.task = asyncio.create_task(self._fly(flight, key, body_bytes))
        return flight

    async def _fly(self, flight: Flight, key: CacheKey, body_bytes: int) -> None:
        """The flight from look-up to fill. Raises CancelledError only: errors are its readers'."""
        run = flight.run
        lookup = asyncio.create_task(self._look_up(run, key))
        try:
            if await self._hit_or_generate(flight, lookup, body_bytes):
                return
            flight.end()
            self._forget(flight, key)
            await self._afterwards.generated(run, key, await lookup)
        except Exception as error:
            if flight.is_over:  # its readers have their answer
                _log.exception("after an answer", extra={"request_id": run.request_id})
            else:
                flight.end(error)
        finally:
            lookup.cancel()
            self._forget(flight, key)
            flight.close()

    async def _look_up(self, run: Exchange, key: CacheKey) -> CacheReply:
        left_ms = run.ledger.elapsed_ms()
        reply = await self._cache.lookup(run, key)
        if run.cache_control.may_read:
            is_exact = isinstance(reply, CacheHit) and reply.tier == "exact"
            self._lead.learn(run.tenant.name, run.ledger.elapsed_ms() - left_ms if is_exact else None)
        return reply

    async def _hit_or_generate(
        self, flight: Flight, lookup: "asyncio.Task[CacheReply]", body_bytes: int
    ) -> bool:
        """Whether a hit is replayed; if not, the generation has delivered everything."""
        run = flight.run
        for num_runs in range(1, MAX_RUNS + 1):
            race = UntilHit(lookup, lambda hit: self._replay(flight, hit))
            try:
                with race:
                    await self._generate(flight, lookup, body_bytes)
                return race.is_hit
            except Sub100Error as error:
                if flight.has_begun:
                    raise
                if not run.tenant.shadow and isinstance(reply := await lookup, CacheHit):
                    return self._replay(flight, reply)  # it needs no worker
                if num_runs == MAX_RUNS or flight.num_readers < 2 or not isinstance(error, Evicted):
                    raise
                run.start_over()
        raise AssertionError("unreachable")

    async def _generate(self, flight: Flight, lookup: "asyncio.Task[CacheReply]", body_bytes: int) -> None:
        run = flight.run
        lead_ms = self._lead_ms(run)
        if lead_ms > 0 and not lookup.done():
            hop = run.ledger.open(semconv.HOP_LEAD)
            await asyncio.wait({lookup}, timeout=lead_ms / 1e3)
            run.ledger.close(hop)
            hop.is_unused = lookup.done()  # then the wait is the look-up's own
        prompt = await self._preparer.prepare(run, body_bytes)
        run.cache = MISS
        await self._generator.run(run, prompt, flight)

    def _lead_ms(self, run: Exchange) -> float:
        if run.tenant.shadow or not run.cache_control.may_read:
            return 0.0
        return self._lead.allowed_ms(
            run.tenant.name,
            remaining_ms=run.ledger.remaining_ms(),
            allotted_ms=run.ledger.allotted_ms(semconv.HOP_CACHE),
            predicted_ttft_ms=self._scheduler.predicted_ttft_ms,
            has_headroom=self._fleet.has_headroom(),
        )

    @staticmethod
    def _replay(flight: Flight, hit: CacheHit) -> bool:
        """False: it comes too late, or is only compared. What was dispatched beside it is not on its way."""
        run = flight.run
        if flight.has_begun or run.tenant.shadow:
            return False
        for hop in run.ledger.hops:
            if hop.name != semconv.HOP_CACHE:
                hop.is_unused = True
        flight.replay(hit)
        return True

    def _forget(self, flight: Flight, key: CacheKey) -> None:
        if self._flights.get(key.digest) is flight:
            del self._flights[key.digest]

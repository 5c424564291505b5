"""What enters, and what of it goes to the regions that share the tenant's answers."""

import logging
from typing import Final

from sub100_proto import codec, subjects
from sub100_proto.cache import CacheFill, CacheReplica
from sub100_shared.bus import Bus, BusUnavailable, PayloadTooLarge

from .config import CacheConfig
from .freshness import Freshness
from .semantic import SemanticTier
from .store.writes import WallClock, Writes
from .tenants import Tenants
from .upkeep import Upkeep

_log = logging.getLogger(__name__)

_FINISHED: Final = "stop"


class Fills:
    """All methods raise StoreUnavailable, and ValueError for a digest or scope of the wrong length."""

    def __init__(
        self,
        bus: Bus,
        region: str,
        config: CacheConfig,
        writes: Writes,
        semantic: SemanticTier | None,
        tenants: Tenants,
        freshness: Freshness,
        upkeep: Upkeep,
        wall_clock: WallClock,
    ) -> None:
        self._bus = bus
        self._region = region
        self._config = config
        self._writes = writes
        self._semantic = semantic
        self._tenants = tenants
        self._freshness = freshness
        self._upkeep = upkeep
        self._wall_clock = wall_clock

    async def fill(self, fill: CacheFill) -> None:
        """Only whole answers enter. What was stored here is sent on; what was sent here is not."""
        if not _is_whole(fill):
            return
        ttl_s, limit = min(fill.ttl_s, self._config.max_ttl_s), self._config.max_answer_bytes
        vector = await self._semantic.vector_of(fill) if self._semantic is not None else None
        self._upkeep.wrote(fill.tenant)
        if await self._writes.fill(fill, vector, ttl_s=ttl_s, limit=limit):
            await self._replicate(fill)
        else:
            _log.info("answer not stored", extra={"request_id": fill.request_id})

    async def replica(self, replica: CacheReplica) -> None:
        """Store what another region sent: if the tenant shares its answers with both, if it is not late, and
        if no invalidation that is known here has overtaken it."""
        fill = replica.fill
        age_s = max(0.0, self._wall_clock() - replica.stored_unix_s)
        ttl_s = min(fill.ttl_s, self._config.max_ttl_s) - age_s
        if (
            not _is_whole(fill)
            or ttl_s < 1
            or age_s > self._config.max_replica_age_s
            or self._freshness.is_cut_off
            or not self._shares(fill.tenant, replica.origin)
        ):
            return
        vector = await self._semantic.vector_of(fill) if self._semantic is not None else None
        self._upkeep.wrote(fill.tenant)
        await self._writes.replica(
            replica,
            vector,
            ttl_s=ttl_s,
            limit=self._config.max_answer_bytes,
            own_position=self._freshness.position,
        )

    async def _replicate(self, fill: CacheFill) -> None:
        """As well as it goes: a region that does not get it computes the answer itself."""
        others = [
            region for region in self._tenants.regions(fill.tenant) if self._shares(fill.tenant, region)
        ]
        if not others:
            return
        replica = CacheReplica(origin=self._region, stored_unix_s=self._wall_clock(), fill=fill)
        payload = codec.encode(replica)
        for region in others:
            try:
                await self._bus.publish(subjects.cache_replica(region), payload)
            except (BusUnavailable, PayloadTooLarge) as error:
                _log.debug("replica not sent", extra={"region": region, "error": str(error)})

    def _shares(self, tenant: str, other: str) -> bool:
        return other != self._region and {self._region, other} <= self._tenants.regions(tenant)


def _is_whole(fill: CacheFill) -> bool:
    return fill.ttl_s >= 1 and fill.answer.finish_reason == _FINISHED

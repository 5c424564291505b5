"""What goes to the regions that share a tenant's answers, and what of theirs is taken."""

import logging

from sub100_proto import codec, subjects
from sub100_proto.cache import CacheAliasReplica, CacheReplica
from sub100_shared.bus import Bus, BusUnavailable, PayloadTooLarge

from .freshness import Freshness
from .store.log_place import Place
from .store.writes import WallClock
from .tenants import Tenants

_log = logging.getLogger(__name__)


class Replication:
    """What was written here is sent once; what was sent here is never sent on."""

    def __init__(
        self,
        bus: Bus,
        region: str,
        tenants: Tenants,
        freshness: Freshness,
        wall_clock: WallClock,
        *,
        max_age_s: float,
    ) -> None:
        self._bus = bus
        self.region = region
        self._tenants = tenants
        self._freshness = freshness
        self._wall_clock = wall_clock
        self._max_age_s = max_age_s

    @property
    def place(self) -> Place:
        """In the log of invalidations, applied up to here."""
        return self._freshness.place

    async def send(self, tenant: str, replica: CacheReplica | CacheAliasReplica) -> None:
        """As well as it goes: a region that does not get it finds out for itself."""
        others = [region for region in self._tenants.regions(tenant) if self._shares(tenant, region)]
        payload = codec.encode(replica) if others else b""
        for region in others:
            try:
                await self._bus.publish(subjects.cache_replica(region), payload)
            except (BusUnavailable, PayloadTooLarge) as error:
                _log.debug("replica not sent", extra={"region": region, "error": str(error)})

    def takes(self, tenant: str, origin: str, sent_unix_s: float) -> bool:
        """If the tenant shares its answers with both regions, if it is not late, and if this region knows of
        all invalidations."""
        return (
            self.age_s(sent_unix_s) <= self._max_age_s
            and not self._freshness.is_cut_off
            and self._shares(tenant, origin)
        )

    def age_s(self, sent_unix_s: float) -> float:
        """Never negative, whatever the regions' clocks say."""
        return max(0.0, self._wall_clock() - sent_unix_s)

    def _shares(self, tenant: str, other: str) -> bool:
        return other != self.region and {self.region, other} <= self._tenants.regions(tenant)

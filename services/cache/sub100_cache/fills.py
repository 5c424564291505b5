"""What enters: answers and aliases, of this region and of those that share the tenant's answers."""

import logging
from typing import Final

from sub100_proto.cache import CacheAlias, CacheAliasReplica, CacheFill, CacheReplica

from .config import CacheConfig
from .replication import Replication
from .semantic import SemanticTier
from .store.writes import WallClock, Writes
from .upkeep import Upkeep

_log = logging.getLogger(__name__)

_FINISHED: Final = "stop"


class Fills:
    """All methods raise StoreUnavailable, and ValueError for a digest or scope of the wrong length."""

    def __init__(
        self,
        config: CacheConfig,
        writes: Writes,
        semantic: SemanticTier | None,
        replication: Replication,
        upkeep: Upkeep,
        wall_clock: WallClock,
    ) -> None:
        self._config = config
        self._writes = writes
        self._semantic = semantic
        self._replication = replication
        self._upkeep = upkeep
        self._wall_clock = wall_clock

    async def fill(self, fill: CacheFill) -> None:
        """Only whole answers enter. What was stored here is sent on."""
        if not _is_whole(fill):
            return
        ttl_s, limit = min(fill.ttl_s, self._config.max_ttl_s), self._config.max_answer_bytes
        vector = await self._semantic.vector_of(fill) if self._semantic is not None else None
        self._upkeep.wrote(fill.tenant)
        if await self._writes.fill(fill, vector, ttl_s=ttl_s, limit=limit):
            origin, now_s = self._replication.region, self._wall_clock()
            replica = CacheReplica(origin=origin, stored_unix_s=now_s, fill=fill)
            await self._replication.send(fill.tenant, replica)
        else:
            _log.info("answer not stored", extra={"request_id": fill.request_id})

    async def alias(self, alias: CacheAlias) -> None:
        """A judge of this region found it; what was stored here is sent on. It outlives answers: whichever of
        the two questions is answered next serves both."""
        if await self._writes.alias(alias, ttl_s=self._config.max_ttl_s):
            origin, now_s = self._replication.region, self._wall_clock()
            replica = CacheAliasReplica(origin=origin, judged_unix_s=now_s, alias=alias)
            await self._replication.send(alias.tenant, replica)

    async def replica(self, replica: CacheReplica | CacheAliasReplica) -> None:
        """Store what another region sent, if it may come in and no invalidation that is known here has
        overtaken it. An alias needs an answer of its target's here."""
        match replica:
            case CacheReplica():
                await self._answer(replica)
            case CacheAliasReplica():
                alias = replica.alias
                ttl_s = self._config.max_ttl_s - self._replication.age_s(replica.judged_unix_s)
                takes = self._replication.takes(alias.tenant, replica.origin, replica.judged_unix_s)
                if takes and ttl_s >= 1:
                    place = self._replication.place
                    await self._writes.alias_replica(alias, ttl_s=ttl_s, own_place=place)

    async def _answer(self, replica: CacheReplica) -> None:
        fill = replica.fill
        ttl_s = min(fill.ttl_s, self._config.max_ttl_s) - self._replication.age_s(replica.stored_unix_s)
        if not self._replication.takes(fill.tenant, replica.origin, replica.stored_unix_s):
            return
        if ttl_s < 1 or not _is_whole(fill):
            return
        vector = await self._semantic.vector_of(fill) if self._semantic is not None else None
        self._upkeep.wrote(fill.tenant)
        await self._writes.replica(
            replica,
            vector,
            ttl_s=ttl_s,
            limit=self._config.max_answer_bytes,
            own_place=self._replication.place,
        )


def _is_whole(fill: CacheFill) -> bool:
    return fill.ttl_s >= 1 and fill.answer.finish_reason == _FINISHED

"""A look-up through the tiers, within its time: exact first, then semantic."""

from sub100_proto.cache import CacheHit, CacheLookup, CacheMiss, CacheReply
from sub100_shared.clock import Clock

from .embedders.api import EmbedderUnavailable
from .semantic import SemanticTier
from .store.commands import StoreUnavailable
from .store.entries import Entry, UnreadableEntry
from .store.exact import ExactTier
from .store.writes import WallClock

EXACT, SEMANTIC = "exact", "semantic"


class Lookups:
    """``clock`` in milliseconds."""

    def __init__(
        self, exact: ExactTier, semantic: SemanticTier | None, clock: Clock, wall_clock: WallClock
    ) -> None:
        self._exact = exact
        self._semantic = semantic
        self._clock = clock
        self._wall_clock = wall_clock

    async def reply(self, lookup: CacheLookup, allotted_ms: float) -> CacheReply:
        """Never later than ``allotted_ms``. Raises ValueError for a digest or scope of the wrong length."""
        deadline_ms = self._clock() + allotted_ms
        try:
            entry = await self._exact.get(lookup.tenant, lookup.digest, allotted_ms / 1e3)
            if entry is not None:
                return self._hit(lookup, entry, EXACT, 1.0)
            if self._semantic is None or not lookup.scope:
                return CacheMiss()
            found = await self._semantic.find(lookup, deadline_ms)
        except UnreadableEntry:
            return CacheMiss(reason="unreadable")
        except StoreUnavailable:
            return CacheMiss(reason="unavailable")
        except EmbedderUnavailable:
            # The exact tier has answered: there is no such entry.
            return CacheMiss()
        if found.entry is None:
            return CacheMiss(near=found.near)
        return self._hit(lookup, found.entry, SEMANTIC, found.similarity)

    def _hit(self, lookup: CacheLookup, entry: Entry, tier: str, similarity: float) -> CacheReply:
        age_s = max(0.0, self._wall_clock() - entry.stored_at_s)
        if lookup.max_age_s is not None and age_s >= lookup.max_age_s:
            return CacheMiss(reason="stale")
        return CacheHit(
            answer=entry.answer,
            tier=tier,
            age_s=age_s,
            similarity=min(1.0, similarity),
            generation=entry.generation,
        )

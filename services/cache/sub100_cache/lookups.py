"""A look-up through the tiers, within its time: exact first, then semantic."""

from sub100_proto.cache import CacheHit, CacheLookup, CacheMiss, CacheReply
from sub100_shared.clock import Clock

from .embedders.api import EmbedderUnavailable
from .freshness import Freshness
from .semantic import SemanticTier
from .store.commands import StoreUnavailable
from .store.entries import Entry
from .store.exact import ExactTier
from .store.generations import Generations, Question, Standing, Token
from .store.writes import WallClock

EXACT, SEMANTIC = "exact", "semantic"


class Lookups:
    """``clock`` in milliseconds."""

    def __init__(
        self,
        exact: ExactTier,
        generations: Generations,
        semantic: SemanticTier | None,
        freshness: Freshness,
        clock: Clock,
        wall_clock: WallClock,
    ) -> None:
        self._exact = exact
        self._generations = generations
        self._semantic = semantic
        self._freshness = freshness
        self._clock = clock
        self._wall_clock = wall_clock

    async def reply(self, lookup: CacheLookup, allotted_ms: float) -> CacheReply:
        """Never later than ``allotted_ms``. Raises ValueError for a digest or scope of the wrong length.

        Every reply brings the generation that holds now, unless the store is away or the region is cut off.
        """
        if self._freshness.is_cut_off:
            return CacheMiss(reason="cut_off")
        deadline_ms = self._clock() + allotted_ms
        question = Question(lookup.tenant, lookup.scope, lookup.revision)
        generation = b""
        try:
            exact = await self._exact.get(question, lookup.digest, allotted_ms / 1e3)
            generation = await self._captured(question, exact.standing, deadline_ms)
            if exact.entry is not None:
                return self._hit(lookup, exact.entry, EXACT, 1.0, generation)
            if exact.is_damaged:
                return CacheMiss(reason="unreadable", generation=generation)
            if self._semantic is None or not lookup.scope:
                return CacheMiss(generation=generation)
            found = await self._semantic.find(lookup, deadline_ms)
        except StoreUnavailable:
            return CacheMiss(reason="unavailable", generation=generation)
        except EmbedderUnavailable:
            # The exact tier has answered: there is no such entry.
            return CacheMiss(generation=generation)
        if found.entry is None:
            return CacheMiss(generation=generation, near=found.near)
        return self._hit(lookup, found.entry, SEMANTIC, found.similarity, generation)

    async def _captured(self, question: Question, standing: Standing, deadline_ms: float) -> bytes:
        """A tenant's first look-up, and the first after its record was lost, makes the record."""
        if not standing.number:
            left_s = max(0.0, deadline_ms - self._clock()) / 1e3
            standing = await self._generations.establish(question, self._freshness.place, left_s)
        return Token(standing.number, self._freshness.place).packed()

    def _hit(
        self, lookup: CacheLookup, entry: Entry, tier: str, similarity: float, generation: bytes
    ) -> CacheReply:
        age_s = max(0.0, self._wall_clock() - entry.stored_at_s)
        if lookup.max_age_s is not None and age_s >= lookup.max_age_s:
            return CacheMiss(reason="stale", generation=generation)
        return CacheHit(
            answer=entry.answer,
            tier=tier,
            age_s=age_s,
            similarity=min(1.0, similarity),
            generation=generation,
        )

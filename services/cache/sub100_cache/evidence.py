"""What look-ups came to: each tenant's, with what its answers take up; and of all, for the metrics."""

from collections.abc import Mapping
from typing import Final

from sub100_proto.cache import CacheHit, CacheMiss, CacheObserved, CacheReply, CacheStats

from .guard.rules import RULES
from .store.commands import StoreUnavailable
from .store.counts import Counts
from .store.ledger import Ledger

_LOOKUPS: Final = "num_lookups"
_HITS: Final = {"exact": "num_exact_hits", "semantic": "num_semantic_hits"}
_SHADOW_HITS: Final = "num_shadow_hits"
_SHADOW_FALSE: Final = "num_shadow_false"


class Evidence:
    def __init__(self, counts: Counts, ledger: Ledger) -> None:
        self._counts = counts
        self._ledger = ledger
        self._refused = dict.fromkeys(sorted(RULES), 0)
        self._shadow = {"agreed": 0, "differed": 0}

    @property
    def num_refused(self) -> Mapping[tuple[str, ...], int]:
        """Look-ups with a near question that the guard refused, by its rule."""
        return {(rule,): num for rule, num in self._refused.items()}

    @property
    def num_shadow(self) -> Mapping[tuple[str, ...], int]:
        """Shadow hits by whether the model agreed."""
        return {(verdict,): num for verdict, num in self._shadow.items()}

    def replied(self, tenant: str, reply: CacheReply) -> None:
        """Costs no message: counts are written in batches."""
        hit = (_HITS[reply.tier],) if isinstance(reply, CacheHit) else ()
        self._counts.add(tenant, (_LOOKUPS, *hit))
        if isinstance(reply, CacheMiss) and reply.near is not None:
            self._refused[reply.near.rule] += 1

    def observed(self, seen: CacheObserved) -> None:
        self._shadow["agreed" if seen.agreed else "differed"] += 1
        self._counts.add(seen.tenant, (_SHADOW_HITS,) if seen.agreed else (_SHADOW_HITS, _SHADOW_FALSE))

    async def of(self, tenant: str) -> CacheStats:
        """Entries are as the books have them: the upkeep finds what Redis forgot by itself."""
        try:
            num_entries, num_bytes = await self._ledger.size(tenant)
            counts = await self._counts.of(tenant)
        except StoreUnavailable as error:
            return CacheStats(error=f"unavailable: {error}")
        known = {name: num for name, num in counts.items() if name in CacheStats.__struct_fields__}
        return CacheStats(num_entries=num_entries, num_bytes=num_bytes, **known)  # type: ignore[arg-type]

"""What a tenant's look-ups came to, and what its answers take up."""

from typing import Final

from sub100_proto.cache import CacheHit, CacheObserved, CacheReply, CacheStats

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

    def replied(self, tenant: str, reply: CacheReply) -> None:
        """Costs no message: counts are written in batches."""
        hit = (_HITS[reply.tier],) if isinstance(reply, CacheHit) else ()
        self._counts.add(tenant, (_LOOKUPS, *hit))

    def observed(self, seen: CacheObserved) -> None:
        self._counts.add(seen.tenant, (_SHADOW_HITS,) if seen.agreed else (_SHADOW_HITS, _SHADOW_FALSE))

    async def of(self, tenant: str) -> CacheStats:
        """Entries are counted when asked for: those that have ended are forgotten first."""
        try:
            await self._ledger.reconcile(tenant)
            num_entries, num_bytes = await self._ledger.size(tenant)
            counts = await self._counts.of(tenant)
        except StoreUnavailable as error:
            return CacheStats(error=f"unavailable: {error}")
        known = {name: num for name, num in counts.items() if name in CacheStats.__struct_fields__}
        return CacheStats(num_entries=num_entries, num_bytes=num_bytes, **known)  # type: ignore[arg-type]

"""``GET /v1/cache/stats``: what a tenant may know of its own cache, and of nobody else's."""

import msgspec

from sub100_proto.cache import CacheStats

_encode = msgspec.json.Encoder().encode


class _Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Rates are None where there is nothing to divide by. ``false_hit_rate`` is of the hits that shadow mode
    compared: of semantic and exact hits, how many had another text than the model's answer."""

    object: str = "cache.stats"
    tenant: str
    lookups: int
    exact_hits: int
    semantic_hits: int
    hit_rate: float | None
    shadow_hits: int
    shadow_false_hits: int
    false_hit_rate: float | None
    entries: int
    bytes: int


def body(tenant: str, stats: CacheStats) -> bytes:
    """Counts of one region since the tenant's first request there, and the rates that follow from them."""
    return _encode(
        _Counts(
            tenant=tenant,
            lookups=stats.num_lookups,
            exact_hits=stats.num_exact_hits,
            semantic_hits=stats.num_semantic_hits,
            hit_rate=_rate(stats.num_exact_hits + stats.num_semantic_hits, stats.num_lookups),
            shadow_hits=stats.num_shadow_hits,
            shadow_false_hits=stats.num_shadow_false,
            false_hit_rate=_rate(stats.num_shadow_false, stats.num_shadow_hits),
            entries=stats.num_entries,
            bytes=stats.num_bytes,
        )
    )


def _rate(num: int, of: int) -> float | None:
    return round(num / of, 6) if of else None

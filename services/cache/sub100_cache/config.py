"""``SUB100_CACHE_*``. The Redis address is the shared ``SUB100_REDIS_URL``."""

from typing import Annotated

import msgspec

Positive = Annotated[int, msgspec.Meta(ge=1)]


class CacheConfig(msgspec.Struct, frozen=True, kw_only=True):
    """``max_ttl_s`` caps what a fill asks for; an entry larger than ``max_answer_bytes`` is not stored.

    ``max_lookup_ms`` caps the allotment that a request may bring. ``max_lookups`` and ``max_fills`` bound
    what runs at once: over it a look-up is a miss and a fill is dropped. ``max_connections`` bounds the
    Redis commands on the way, those included that nobody waits for any more.
    """

    max_ttl_s: Positive = 86_400
    max_answer_bytes: Positive = 2**20
    max_lookup_ms: Annotated[float, msgspec.Meta(gt=0)] = 50.0
    max_lookups: Positive = 1024
    max_fills: Positive = 256
    max_connections: Positive = 64
    probe_interval_s: Annotated[float, msgspec.Meta(gt=0)] = 0.25

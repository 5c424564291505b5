"""``SUB100_CACHE_*``."""

import msgspec


class CacheConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A look-up may take its allotment, but never more than ``max_lookup_ms``; ``probe_s`` is how often an
    absent Redis is tried. Every entry lives between 1 and ``max_ttl_s`` seconds."""

    max_ttl_s: int = 86_400
    max_entry_bytes: int = 2**20
    max_lookup_ms: float = 250.0
    fill_timeout_ms: float = 1000.0
    probe_s: float = 0.25
    probe_timeout_s: float = 1.0
    max_connections: int = 64
    max_requests: int = 4096

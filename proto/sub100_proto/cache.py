"""The conversation between ingress and cache: look up, hit or miss, fill."""

from ._struct import Message
from .budget import Budget


class CachedAnswer(Message, frozen=True):
    """A finished answer as ingress delivered it. ``pieces`` are the text deltas, in order."""

    model: str
    pieces: tuple[str, ...]
    finish_reason: str
    num_prompt_tokens: int
    num_completion_tokens: int


class CacheLookup(Message, frozen=True, tag="cache_lookup"):
    """``digest`` (32 bytes) covers everything that changes the answer (ingress ``cache_key``);
    ``tenant`` is a hard partition beside it, so that no digest can cross it."""

    request_id: str
    tenant: str
    digest: bytes
    budget: Budget


class CacheHit(Message, frozen=True, tag="cache_hit"):
    answer: CachedAnswer
    tier: str
    age_s: float
    spent_ms: float = 0.0


class CacheMiss(Message, frozen=True, tag="cache_miss"):
    """``reason`` is bounded: ``absent``, ``unreadable`` or ``unavailable`` (the store is away)."""

    reason: str = "absent"
    spent_ms: float = 0.0


class CacheFill(Message, frozen=True, tag="cache_fill"):
    """Store ``answer``; ``ttl_s`` counts from the write and is never renewed by a hit."""

    request_id: str
    tenant: str
    digest: bytes
    answer: CachedAnswer
    ttl_s: int


CacheReply = CacheHit | CacheMiss

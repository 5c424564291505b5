"""The conversations around the cache: look up and fill; aliases, invalidation, replicas, evidence.

A *question* is the last user turn, normalised; its *scope* is a hash of everything else that makes the
answer (tenant, model and revision, system prompt, earlier turns, tools, every sampling field). Nothing ever
crosses a scope, whatever the similarity. ``digest`` covers both: it is the exact tier's key.
"""

from typing import Literal

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
    ``tenant`` is a hard partition beside it, so that no digest can cross it.

    ``scope`` (32 bytes) and ``question`` ask the semantic tier too; empty: the exact tier alone.
    ``threshold`` is the tenant's least cosine (0: the deployment's). ``max_age_s``: older answers are
    misses (None: any age; 0: a miss for sure, asked for its generation). ``revision`` names the model's
    revision, so that all answers of one can be invalidated.
    """

    request_id: str
    tenant: str
    digest: bytes
    budget: Budget
    scope: bytes = b""
    question: str = ""
    revision: str = ""
    threshold: float = 0.0
    max_age_s: float | None = None


class CacheHit(Message, frozen=True, tag="cache_hit"):
    """``tier``: ``exact`` or ``semantic``; ``similarity`` is the cosine (1 for exact)."""

    answer: CachedAnswer
    tier: str
    age_s: float
    spent_ms: float = 0.0
    similarity: float = 1.0
    generation: bytes = b""


class NearMiss(Message, frozen=True):
    """A neighbour above the threshold that the guard refused: what the judge may settle afterwards.

    ``rule`` is the guard's rule that refused (bounded set); ``digest`` is the neighbour's."""

    digest: bytes
    question: str
    similarity: float
    rule: str


class CacheMiss(Message, frozen=True, tag="cache_miss"):
    """``reason`` is bounded: ``absent``, ``stale`` (older than asked for), ``unreadable``, ``cut_off`` (too
    long without news of invalidations) or ``unavailable`` (the store is away).

    ``generation`` is what a later fill must bring back; empty: a fill would be refused.
    """

    reason: str = "absent"
    spent_ms: float = 0.0
    generation: bytes = b""
    near: NearMiss | None = None


class CacheFill(Message, frozen=True, tag="cache_fill"):
    """Store ``answer``; ``ttl_s`` counts from the write and is never renewed by a hit.

    ``generation`` is the look-up's: a fill that an invalidation overtook is dropped.
    """

    request_id: str
    tenant: str
    digest: bytes
    answer: CachedAnswer
    ttl_s: int
    scope: bytes = b""
    question: str = ""
    revision: str = ""
    generation: bytes = b""


class CacheReplica(Message, frozen=True, tag="cache_replica"):
    """A fill that another region stored, for one that shares the tenant's answers. Never sent on.

    ``stored_unix_s`` is when it was stored there. ``fill.generation`` says how far that region had read the
    log of invalidations when the answer was asked for.
    """

    origin: str
    stored_unix_s: float
    fill: CacheFill


class CacheAlias(Message, frozen=True, tag="cache_alias"):
    """The judge found two questions of one scope to have the same answer: ``digest`` is from now on an
    exact hit on the entry of ``target``, for as long as that lives."""

    tenant: str
    digest: bytes
    target: bytes
    generation: bytes
    scope: bytes = b""
    revision: str = ""


class CacheAliasReplica(Message, frozen=True, tag="cache_alias_replica"):
    """An alias that another region's judge found, as CacheReplica is of a fill. Never sent on.

    ``alias.generation`` says how far that region had read the log when the question was asked."""

    origin: str
    judged_unix_s: float
    alias: CacheAlias


class CacheInvalidate(Message, frozen=True, tag="cache_invalidate"):
    """Make every answer of the tenant unreadable that matches: of ``scope`` if given, of ``revision`` if
    given, stored before ``before_unix_s`` if given. ``erase``: its bytes must go too, and be counted."""

    tenant: str
    scope: bytes = b""
    revision: str = ""
    before_unix_s: float = 0.0
    erase: bool = False


class CacheInvalidated(Message, frozen=True, tag="cache_invalidated"):
    """Done in this region and on its way to the others. ``num_left`` counts what a scan after an erasure
    still found of the tenant (0 is the proof). ``is_known``: the region had counts or answers of it."""

    num_erased: int = 0
    num_left: int = 0
    error: str = ""
    is_known: bool = True


class CacheObserved(Message, frozen=True, tag="cache_observed"):
    """Shadow mode: what a hit would have said against what the model said."""

    tenant: str
    tier: str
    agreed: bool
    similarity: float = 1.0


class CacheStatsQuery(Message, frozen=True, tag="cache_stats_query"):
    """A tenant's own evidence."""

    tenant: str


class CacheStats(Message, frozen=True, tag="cache_stats"):
    """Counts of one tenant in this region since its first request."""

    num_lookups: int = 0
    num_exact_hits: int = 0
    num_semantic_hits: int = 0
    num_shadow_hits: int = 0
    num_shadow_false: int = 0
    num_entries: int = 0
    num_bytes: int = 0
    error: str = ""


CacheReply = CacheHit | CacheMiss
CacheTier = Literal["exact", "semantic"]

"""What an answer says beyond OpenAI's shape: ``x-sub100-*`` headers, and the ``sub100`` object.

Streams carry the object in their usage chunk, bodies beside ``usage``. Clients of OpenAI ignore it.
"""

from typing import Final

import msgspec

from .exchange import BYPASS, CacheFacts, Exchange

_encode: Final = msgspec.json.Encoder().encode


class _Cache(msgspec.Struct, frozen=True, omit_defaults=True):
    tier: str
    age_s: float | None = None
    similarity: float | None = None


class _Sub100(msgspec.Struct, frozen=True):
    cache: _Cache


def sub100_object(ex: Exchange) -> bytes:
    """The object as JSON: ``{"cache": {"tier", "age_s", "similarity"}}``; a miss has the tier alone."""
    facts = ex.cache
    if facts is BYPASS:
        return _BYPASSED
    return _encode(_Sub100(cache=_cache(facts)))


def cache_headers(ex: Exchange) -> list[tuple[bytes, bytes]]:
    """``x-sub100-cache``: ``exact``, ``semantic``, ``joined``, ``miss`` or ``bypass``; of a hit also ``age``
    (RFC 9111) and, of a semantic one, ``x-sub100-similarity``."""
    facts = ex.cache
    headers = [(b"x-sub100-cache", facts.outcome.encode())]
    if facts.age_s is not None:
        headers.append((b"age", str(int(facts.age_s)).encode()))
    if facts.similarity is not None and facts.similarity < 1:
        headers.append((b"x-sub100-similarity", f"{facts.similarity:.4f}".encode()))
    return headers


def _cache(facts: CacheFacts) -> _Cache:
    age_s = None if facts.age_s is None else round(facts.age_s, 3)
    similarity = None if facts.similarity is None else round(facts.similarity, 4)
    return _Cache(tier=facts.outcome, age_s=age_s, similarity=similarity)


_BYPASSED: Final = _encode(_Sub100(cache=_cache(BYPASS)))

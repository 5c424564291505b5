"""What an answer says beyond OpenAI's shape: ``x-sub100-*`` headers, and the ``sub100`` object.

Streams carry the object in their usage chunk, bodies beside ``usage``. Clients of OpenAI ignore it.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from sub100_shared.ledger import Ledger, Segment

from .exchange import CacheFacts, Exchange

_EXACT: Final = "exact"
_encode: Final = msgspec.json.Encoder().encode


class _Cache(msgspec.Struct, frozen=True, omit_defaults=True):
    tier: str
    age_s: float | None = None
    similarity: float | None = None


class _Hop(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    start_ms: float
    spent_ms: float
    allotted_ms: float
    hidden: bool = False


class _Sub100(msgspec.Struct, frozen=True):
    request_id: str
    tier: str
    cache: _Cache
    budget_ms: float
    network_ms: float
    ttft_ms: float | None
    blame: str | None
    hops: list[_Hop]


def sub100_object(ex: Exchange) -> bytes:
    """The object as JSON: what the cache did, and the budget's account.

    ``hops`` lie in the order in which they began; those of the critical path (with ingress's own time
    between them) sum to ``ttft_ms``, those that ran beside it are ``hidden``. ``blame`` is null in time.
    """
    ledger = ex.ledger
    ttft_ms = ledger.ttft_ms
    path = ledger.critical_path()
    return _encode(
        _Sub100(
            request_id=ex.request_id,
            tier=ex.tier,
            cache=_cache(ex.cache),
            budget_ms=ledger.total_ms,
            network_ms=round(ledger.network_ms, 2),
            ttft_ms=None if ttft_ms is None else round(ttft_ms, 2),
            blame=None if ttft_ms is None else ledger.blame(path) or None,
            hops=_hops(ledger, path),
        )
    )


def cache_headers(ex: Exchange) -> list[tuple[bytes, bytes]]:
    """``x-sub100-cache``: ``exact``, ``semantic``, ``joined``, ``miss`` or ``bypass``; of a hit also ``age``
    (RFC 9111) and, of a semantic one, ``x-sub100-similarity``."""
    facts = ex.cache
    headers = [(b"x-sub100-cache", facts.outcome.encode())]
    if facts.age_s is not None:
        headers.append((b"age", str(int(facts.age_s)).encode()))
    if facts.similarity is not None and facts.outcome != _EXACT:
        headers.append((b"x-sub100-similarity", f"{facts.similarity:.4f}".encode()))
    return headers


def _cache(facts: CacheFacts) -> _Cache:
    age_s = None if facts.age_s is None else round(facts.age_s, 3)
    similarity = None if facts.similarity is None else round(facts.similarity, 4)
    return _Cache(tier=facts.outcome, age_s=age_s, similarity=similarity)


def _hops(ledger: Ledger, path: Sequence[Segment]) -> list[_Hop]:
    critical = {id(segment.hop) for segment in path}
    until_ms = ledger.elapsed_ms() if ledger.ttft_ms is None else ledger.ttft_ms
    hops = [_hop(each.name, each.start_ms, each.duration_ms, each.allotted_ms) for each in path]
    hops += [
        _hop(each.name, each.start_ms, each.spent_ms, each.allotted_ms, hidden=True)
        for each in ledger.hops
        if each.end_ms is not None and id(each) not in critical and each.start_ms < until_ms
    ]
    hops.sort(key=lambda hop: hop.start_ms)
    return hops


def _hop(name: str, start_ms: float, spent_ms: float, allotted_ms: float, *, hidden: bool = False) -> _Hop:
    return _Hop(
        name=name,
        start_ms=round(start_ms, 2),
        spent_ms=round(spent_ms, 2),
        allotted_ms=round(allotted_ms, 2),
        hidden=hidden,
    )

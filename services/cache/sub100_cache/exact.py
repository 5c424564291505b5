"""The exact tier: the answer to exactly this request, in this tenant.

An entry names its own key, so that whatever goes wrong on the way to it, no answer is ever given to
another request than its own. It lives for its TTL from the write on, however often it is read.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

import msgspec

from sub100_proto._struct import Message
from sub100_proto.cache import CachedAnswer, CacheFill, CacheHit, CacheLookup, CacheMiss

from .breaker import Breaker
from .store import Store, StoreRefused, StoreUnavailable

_log = logging.getLogger(__name__)

TIER: Final = "cache_exact"
DIGEST_BYTES: Final = 32
MIN_TTL_S: Final = 1
COMPLETE: Final = frozenset({"stop"})
"""Finish reasons of answers that are whole: neither cut off, filtered nor failed."""

WallClock = Callable[[], float]
"""Unix seconds. Only ever used for the age of an entry, between hosts."""


class Entry(Message, frozen=True):
    """What is stored. Fields are only added, each with a default."""

    key: str
    stored_at: float
    answer: CachedAnswer


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Entry).decode


class ExactTier:
    """Look-ups and fills; neither raises."""

    def __init__(
        self, store: Store, breaker: Breaker, now_s: WallClock, *, max_ttl_s: int, max_entry_bytes: int
    ) -> None:
        self._store = store
        self._breaker = breaker
        self._now_s = now_s
        self._max_ttl_s = max_ttl_s
        self._max_entry_bytes = max_entry_bytes
        self.num_fills_dropped = 0

    async def lookup(self, query: CacheLookup, *, timeout_s: float) -> CacheHit | CacheMiss:
        """The answer, or why there is none, after ``timeout_s`` at the latest."""
        if len(query.digest) != DIGEST_BYTES:
            _log.error("look-up without a digest", extra={"request_id": query.request_id})
            return CacheMiss(reason="absent")
        if self._breaker.is_open or timeout_s <= 0:
            return CacheMiss(reason="unavailable")
        key = entry_key(query.tenant, query.digest)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        try:
            value = await self._store.get(key, timeout_s=timeout_s)
        except StoreUnavailable as error:
            self._note(error)
            return CacheMiss(reason="unavailable")
        self._breaker.succeed()
        if value is None:
            return CacheMiss(reason="absent")
        entry = _read(value)
        if entry is None or entry.key != key:
            _log.warning("unreadable cache entry", extra={"request_id": query.request_id})
            await self._delete(key, timeout_s=deadline_s - loop.time())
            return CacheMiss(reason="unreadable")
        return CacheHit(answer=entry.answer, tier=TIER, age_s=max(0.0, self._now_s() - entry.stored_at))

    async def fill(self, fill: CacheFill, *, timeout_s: float) -> bool:
        """Store a whole answer; False if it was dropped: not whole, empty, too large, or no store."""
        refusal = self._refusal(fill)
        if not refusal:
            key = entry_key(fill.tenant, fill.digest)
            value = _encode(Entry(key=key, stored_at=self._now_s(), answer=fill.answer))
            if len(value) <= self._max_entry_bytes:
                ttl_s = min(max(fill.ttl_s, MIN_TTL_S), self._max_ttl_s)
                try:
                    await self._store.put(key, value, ttl_s=ttl_s, timeout_s=timeout_s)
                    return True
                except StoreUnavailable as error:
                    self._note(error)
                    refusal = "unavailable"
            else:
                refusal = "too_large"
        self.num_fills_dropped += 1
        _log.debug("fill dropped", extra={"request_id": fill.request_id, "reason": refusal})
        return False

    async def _delete(self, key: str, *, timeout_s: float) -> None:
        """Remove what nobody can read; if that fails, the next look-up tries again."""
        try:
            await self._store.delete(key, timeout_s=timeout_s)
        except StoreUnavailable as error:
            self._note(error)

    def _note(self, error: StoreUnavailable) -> None:
        if not isinstance(error, StoreRefused):
            self._breaker.fail(str(error), is_timeout=error.is_timeout)

    def _refusal(self, fill: CacheFill) -> str:
        if len(fill.digest) != DIGEST_BYTES:
            return "bad_digest"
        if fill.answer.finish_reason not in COMPLETE:
            return "not_complete"
        if not any(fill.answer.pieces):
            return "empty"
        return "unavailable" if self._breaker.is_open else ""


def entry_key(tenant: str, digest: bytes) -> str:
    """Unambiguous for any tenant name: the name is percent-encoded and the digest has a fixed length."""
    return f"sub100:cache:v1:{quote(tenant, safe='')}:{digest.hex()}"


def _read(value: bytes) -> Entry | None:
    try:
        return _decode(value)
    except msgspec.MsgspecError:
        return None

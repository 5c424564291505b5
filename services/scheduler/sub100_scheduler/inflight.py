"""What has been placed and not yet settled: it counts on its workers at once, not at their next heartbeat.

A placement holds its prompt tokens on the worker that computes them (the uncached ones as work, all of
them in the book that the worker keeps of its queue) and one request on the decode worker. Each share ends
when it is settled, after a time to live (from then on the worker's own heartbeat tells the load), or with
the worker's life.
"""

from collections import OrderedDict
from typing import Final, Literal

import msgspec

from .fleet import WorkerView

_MAX_EARLY: Final = 1024


class _Shares(msgspec.Struct):
    """References to lives, not ids: a new life of a worker starts with nothing in flight."""

    prefill: WorkerView | None
    decode: WorkerView | None
    num_tokens: int
    num_queued_tokens: int
    expires_at_ms: float


class InFlight:
    """The open placements of all replicas, oldest first; at most ``limit`` of them."""

    def __init__(self, *, ttl_ms: float, limit: int) -> None:
        self._ttl_ms = ttl_ms
        self._limit = limit
        self._open: OrderedDict[str, _Shares] = OrderedDict()
        # A replica may hear that a placement is over before it hears of the placement.
        self._early: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def add(
        self,
        placement_id: str,
        *,
        prefill: WorkerView | None,
        decode: WorkerView | None,
        num_tokens: int,
        num_queued_tokens: int,
        now_ms: float,
    ) -> None:
        """``num_tokens`` are uncached. ``prefill`` is whoever computes the prompt: the decode worker when it
        works alone. None: a worker that this replica does not know."""
        if placement_id in self._early:
            del self._early[placement_id]
            return
        if placement_id in self._open:
            return
        while len(self._open) >= self._limit:
            self._release(self._open.popitem(last=False)[1])
        expires_at_ms = now_ms + self._ttl_ms
        self._open[placement_id] = _Shares(prefill, decode, num_tokens, num_queued_tokens, expires_at_ms)
        if prefill is not None:
            prefill.inflight_prefills += 1
            prefill.inflight_prefill_tokens += num_tokens
            prefill.inflight_queued_tokens += num_queued_tokens
        if decode is not None:
            decode.inflight_decodes += 1

    def settle(self, placement_id: str, phase: Literal["prefill", "decode", "all"]) -> None:
        """Free what the phase held; a decode that has ended has no prefill any more. Idempotent."""
        shares = self._open.get(placement_id)
        if shares is None:
            if phase != "prefill":
                self._early[placement_id] = None
                if len(self._early) > _MAX_EARLY:
                    self._early.popitem(last=False)
            return
        self._release_prefill(shares)
        if phase != "prefill":
            self._release(self._open.pop(placement_id))

    def expire(self, now_ms: float) -> int:
        """Free what is older than the time to live; returns how many placements that were."""
        num_expired = 0
        while self._open:
            placement_id, shares = next(iter(self._open.items()))
            if shares.expires_at_ms > now_ms:
                break
            self._release(self._open.pop(placement_id))
            num_expired += 1
        return num_expired

    def _release(self, shares: _Shares) -> None:
        self._release_prefill(shares)
        if shares.decode is not None:
            shares.decode.inflight_decodes -= 1
            shares.decode = None

    @staticmethod
    def _release_prefill(shares: _Shares) -> None:
        if shares.prefill is not None:
            shares.prefill.inflight_prefills -= 1
            shares.prefill.inflight_prefill_tokens -= shares.num_tokens
            shares.prefill.inflight_queued_tokens -= shares.num_queued_tokens
            shares.prefill = None

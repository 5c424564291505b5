"""KV that was handed over: pinned until pulled, released or expired, and remembered as gone after that."""

import secrets
from collections import OrderedDict
from typing import Final

import msgspec

from .block_pool import Block, BlockPool

MAX_TOMBSTONES: Final = 4096


class Lease(msgspec.Struct, frozen=True):
    """``payload`` stands for the KV of ``num_tokens`` prompt tokens in ``blocks``."""

    key: str
    blocks: list[Block]
    payload: bytes
    num_tokens: int
    deadline: float


class LeaseBook:
    """All leases have the same length, so that the oldest ends first."""

    def __init__(self, pool: BlockPool, lease_s: float) -> None:
        self._pool = pool
        self._lease_s = lease_s
        self._leases: OrderedDict[str, Lease] = OrderedDict()
        self._gone: OrderedDict[str, str] = OrderedDict()
        self.num_released_blocks = 0
        self.num_expired_blocks = 0
        self.num_pulled_blocks = 0

    @property
    def num_pinned_blocks(self) -> int:
        return sum(len(lease.blocks) for lease in self._leases.values())

    def __len__(self) -> int:
        return len(self._leases)

    @property
    def next_deadline(self) -> float | None:
        return next(iter(self._leases.values())).deadline if self._leases else None

    def pin(self, blocks: list[Block], payload: bytes, num_tokens: int, now: float) -> Lease:
        """Take over the hold on ``blocks``; the key is unguessable."""
        lease = Lease(secrets.token_urlsafe(16), blocks, payload, num_tokens, now + self._lease_s)
        self._leases[lease.key] = lease
        return lease

    def find(self, key: str) -> Lease | None:
        return self._leases.get(key)

    def why_gone(self, key: str) -> str:
        """``pulled``, ``released``, ``expired``, or ``unknown``."""
        return self._gone.get(key, "unknown")

    def end(self, key: str, why: str) -> bool:
        """Free the blocks of a lease; False if there is none."""
        lease = self._leases.pop(key, None)
        if lease is None:
            return False
        self.num_released_blocks += len(lease.blocks) * (why == "released")
        self.num_expired_blocks += len(lease.blocks) * (why == "expired")
        self.num_pulled_blocks += len(lease.blocks) * (why == "pulled")
        self._pool.release(lease.blocks)
        self._gone[key] = why
        while len(self._gone) > MAX_TOMBSTONES:
            self._gone.popitem(last=False)
        return True

    def expire(self, now: float) -> list[str]:
        """End the leases whose time is over; returns their keys."""
        over: list[str] = []
        for key, lease in self._leases.items():
            if lease.deadline > now:
                break
            over.append(key)
        for key in over:
            self.end(key, "expired")
        return over

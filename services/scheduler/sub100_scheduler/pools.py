"""The fleet summed up by pool and role: what metrics and scaling look at. Pure."""

from collections.abc import Iterable

import msgspec

from sub100_proto.fleet import State
from sub100_proto.subjects import Role

from .fleet import WorkerView

PoolKey = tuple[Role, str]
"""Role and pool."""


class PoolLoad(msgspec.Struct, kw_only=True):
    """``num_waiting_tokens``, ``num_requests``, ``num_places`` (batch slots) and ``kv_usage`` (the mean share
    of KV blocks in use) are of the ready workers; ``heartbeat_age_s`` is the oldest over all."""

    num_by_state: dict[State, int] = msgspec.field(default_factory=dict)
    num_waiting_tokens: int = 0
    num_requests: int = 0
    num_places: int = 0
    kv_usage: float = 0.0
    heartbeat_age_s: float = 0.0

    @property
    def num_ready(self) -> int:
        return self.num_by_state.get("ready", 0)

    @property
    def occupancy(self) -> float:
        """Requests over places; 0 without a place."""
        return self.num_requests / self.num_places if self.num_places else 0.0


def sum_up(workers: Iterable[WorkerView], now_ms: float) -> dict[PoolKey, PoolLoad]:
    """One entry per role and pool that has a worker in any state."""
    pools: dict[PoolKey, PoolLoad] = {}
    for worker in workers:
        beat = worker.heartbeat
        pool = pools.setdefault((beat.role, beat.pool), PoolLoad())
        pool.num_by_state[beat.state] = pool.num_by_state.get(beat.state, 0) + 1
        pool.heartbeat_age_s = max(pool.heartbeat_age_s, (now_ms - worker.last_seen_ms) / 1e3)
        if beat.state == "ready":
            pool.num_waiting_tokens += worker.num_queued_tokens
            pool.num_requests += worker.num_requests
            pool.num_places += beat.max_num_seqs
            pool.kv_usage += beat.load.kv_usage
    for pool in pools.values():
        pool.kv_usage /= max(1, pool.num_ready)
    return pools

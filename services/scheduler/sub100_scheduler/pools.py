"""The fleet summed up by pool and role: what metrics and scaling look at. Pure."""

from collections.abc import Iterable
from typing import Protocol

import msgspec

from sub100_proto.fleet import State
from sub100_proto.subjects import Role

from .fleet import WorkerView

PoolKey = tuple[Role, str]
"""Role and pool."""


class PoolLoad(msgspec.Struct, kw_only=True):
    """``num_waiting_tokens``, ``num_requests``, ``num_places`` (batch slots) and ``kv_usage`` (the mean share
    of KV blocks in use) are of the ready workers; ``heartbeat_age_s`` is the oldest over all.

    ``work``: how many workers the prefill work asked for would keep busy. ``wait_ms``: what the queue makes
    a prompt of recent length wait, the mean over the workers; ``ttft_ms``: what the best of them promises.
    """

    num_by_state: dict[State, int] = msgspec.field(default_factory=dict)
    num_waiting_tokens: int = 0
    num_requests: int = 0
    num_places: int = 0
    kv_usage: float = 0.0
    heartbeat_age_s: float = 0.0
    work: float = 0.0
    wait_ms: float = 0.0
    ttft_ms: float = 0.0

    @property
    def num_ready(self) -> int:
        return self.num_by_state.get("ready", 0)

    @property
    def occupancy(self) -> float:
        """Requests over places; 0 without a place."""
        return self.num_requests / self.num_places if self.num_places else 0.0


class Outlook(Protocol):
    """What is read of the predictor."""

    def ttft_ms(self, worker_id: str, *, num_ahead: int, num_tokens: int, max_chunk_tokens: int) -> float: ...


class Asked(Protocol):
    """What is read of the workload."""

    def busy(self, pool: PoolKey) -> float: ...

    def mean_tokens(self, pool: PoolKey) -> int: ...


def sum_up(
    workers: Iterable[WorkerView], outlook: Outlook, asked: Asked, now_ms: float
) -> dict[PoolKey, PoolLoad]:
    """One entry per role and pool that has a worker in any state."""
    pools: dict[PoolKey, PoolLoad] = {}
    for worker in workers:
        beat = worker.heartbeat
        key = (beat.role, beat.pool)
        pool = pools.setdefault(key, PoolLoad())
        pool.num_by_state[beat.state] = pool.num_by_state.get(beat.state, 0) + 1
        pool.heartbeat_age_s = max(pool.heartbeat_age_s, (now_ms - worker.last_seen_ms) / 1e3)
        if beat.state == "ready":
            _add_ready(pool, worker, outlook, asked.mean_tokens(key))
    for key, pool in pools.items():
        pool.work = asked.busy(key)
        pool.kv_usage /= max(1, pool.num_ready)
        pool.wait_ms /= max(1, pool.num_ready)
    return pools


def _add_ready(pool: PoolLoad, worker: WorkerView, outlook: Outlook, num_tokens: int) -> None:
    """Sums; ``sum_up`` makes means of what is to be one."""
    beat = worker.heartbeat

    def ttft_ms(num_ahead: int) -> float:
        return outlook.ttft_ms(
            worker.worker_id,
            num_ahead=num_ahead,
            num_tokens=num_tokens,
            max_chunk_tokens=beat.max_chunk_tokens,
        )

    promised_ms = ttft_ms(worker.num_tokens_ahead)
    pool.ttft_ms = promised_ms if pool.num_ready == 1 else min(pool.ttft_ms, promised_ms)
    pool.wait_ms += promised_ms - ttft_ms(0)
    pool.num_waiting_tokens += worker.num_tokens_ahead
    pool.num_requests += worker.num_requests
    pool.num_places += beat.max_num_seqs
    pool.kv_usage += beat.load.kv_usage

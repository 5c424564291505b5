"""How much prefill work a region's placements ask of each pool: the load before it is a queue. Pure."""

import math
from typing import Final

import msgspec

from .pools import PoolKey

SMOOTHING_S: Final = 10.0
_TOKENS_WEIGHT: Final = 0.05
_MAX_POOLS: Final = 256


class _Asked(msgspec.Struct):
    """``pending_ms`` since the last tick; ``busy`` is work per time, ``tokens`` a prompt's uncached mean."""

    pending_ms: float = 0.0
    busy: float = 0.0
    tokens: float = 0.0


class Workload:
    """Exponentially smoothed over SMOOTHING_S. Time is the caller's, in monotonic milliseconds."""

    def __init__(self) -> None:
        self._pools: dict[PoolKey, _Asked] = {}
        self._last_ms: float | None = None

    def add(self, pool: PoolKey, *, num_tokens: int, work_ms: float) -> None:
        """A placement whose prompt has ``num_tokens`` to compute, in ``work_ms``."""
        asked = self._pools.get(pool)
        if asked is None:
            if len(self._pools) >= _MAX_POOLS:
                return
            asked = self._pools[pool] = _Asked(tokens=num_tokens)
        asked.pending_ms += work_ms
        asked.tokens += (num_tokens - asked.tokens) * _TOKENS_WEIGHT

    def tick(self, now_ms: float) -> None:
        """Let time pass."""
        last_ms, self._last_ms = self._last_ms, now_ms
        elapsed_ms = 0.0 if last_ms is None else now_ms - last_ms
        if elapsed_ms <= 0:
            return
        weight = 1 - math.exp(-elapsed_ms / 1e3 / SMOOTHING_S)
        for asked in self._pools.values():
            asked.busy += (asked.pending_ms / elapsed_ms - asked.busy) * weight
            asked.pending_ms = 0.0

    def busy(self, pool: PoolKey) -> float:
        """Workers that the work asked for would keep busy all the time."""
        asked = self._pools.get(pool)
        return 0.0 if asked is None else asked.busy

    def mean_tokens(self, pool: PoolKey) -> int:
        """Of a recent prompt, what was not cached; 0 when there was none."""
        asked = self._pools.get(pool)
        return 0 if asked is None else round(asked.tokens)

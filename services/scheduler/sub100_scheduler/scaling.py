"""How many workers a pool should have. Pure: a demand from signals, and a memory that lets go slowly.

Each signal says by itself how many replicas would bring it to its target (as Kubernetes' autoscaler does:
``replicas * value / target``); the largest wins.

- **work**: prefill time asked for per second, by the predictor, is the number of workers that would be busy
  all the time; at ``utilisation`` of that they keep queues short. It sees load before a queue forms.
- **wait**: what the queue makes a new prompt wait, against ``wait_ms`` of its budget.
- **occupancy** and **kv**: batch places and KV blocks in use.

Up at once; down only to the largest demand of the last ``down_after_s``, so that a pause does not cost a warm
cache. A pool whose workers are all gone keeps its last wanted size: that is when it must not shrink.
"""

import math
from collections import deque
from typing import Final, Literal

import msgspec

from .pools import PoolKey, PoolLoad

Signal = Literal["work", "wait", "occupancy", "kv"]

TOLERANCE: Final = 0.1
"""Of a target: a signal so close to it changes nothing."""

MAX_WAIT_SHARE: Final = 2.0
"""A queue says that there are too few workers, not how many are missing."""

MAX_POOLS: Final = 256


class Targets(msgspec.Struct, frozen=True, kw_only=True):
    """See the module; ``min_replicas`` to ``max_replicas`` bound each role of each pool."""

    utilisation: float = 0.7
    wait_ms: float = 20.0
    occupancy: float = 0.8
    kv_usage: float = 0.85
    min_replicas: int = 1
    max_replicas: int = 64
    down_after_s: float = 300.0


def demand(load: PoolLoad, targets: Targets) -> dict[Signal, int]:
    """What each signal asks for, within the bounds; empty without a ready worker: nothing is known then."""
    num_ready = load.num_ready
    if not num_ready:
        return {}
    shares: dict[Signal, float] = {
        "work": load.work / num_ready / targets.utilisation,
        "wait": min(load.wait_ms / targets.wait_ms, MAX_WAIT_SHARE),
        "occupancy": load.occupancy / targets.occupancy,
        "kv": load.kv_usage / targets.kv_usage,
    }
    return {
        signal: _bounded(num_ready if abs(share - 1) <= TOLERANCE else math.ceil(num_ready * share), targets)
        for signal, share in shares.items()
    }


class Scaler:
    """Wanted replicas by pool, with hysteresis. Time is the caller's, in monotonic milliseconds."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets
        self._peaks: dict[PoolKey, _Peak] = {}

    def update(self, pools: dict[PoolKey, PoolLoad], now_ms: float) -> dict[PoolKey, int]:
        """Wanted replicas of every pool that was ever seen."""
        for key, load in pools.items():
            asked = demand(load, self._targets)
            peak = self._peaks.get(key)
            if peak is None:
                if len(self._peaks) >= MAX_POOLS:
                    continue
                # A fleet that this scheduler finds is right until its load has been watched for a while.
                peak = self._peaks[key] = _Peak(self._targets.down_after_s * 1e3)
                peak.add(_bounded(sum(load.num_by_state.values()), self._targets), now_ms)
            if asked:
                peak.add(max(asked.values()), now_ms)
        return {key: peak.value(now_ms) for key, peak in self._peaks.items()}


class _Peak:
    """The largest of the values of a window; the last one stays however old it is."""

    def __init__(self, window_ms: float) -> None:
        self._window_ms = window_ms
        self._values: deque[tuple[float, int]] = deque()
        """Times and falling values: nothing is kept that a later, larger one covers."""

    def add(self, value: int, now_ms: float) -> None:
        while self._values and self._values[-1][1] <= value:
            self._values.pop()
        self._values.append((now_ms, value))

    def value(self, now_ms: float) -> int:
        while len(self._values) > 1 and now_ms - self._values[0][0] > self._window_ms:
            self._values.popleft()
        return self._values[0][1]


def _bounded(replicas: int, targets: Targets) -> int:
    return min(max(replicas, targets.min_replicas), targets.max_replicas)

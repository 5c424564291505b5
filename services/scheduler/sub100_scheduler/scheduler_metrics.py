"""The scheduler's metrics: decisions as they are made, the fleet as it was a moment ago."""

from collections.abc import Callable, Mapping
from typing import Final

from sub100_proto.placement import Placement, Rejected
from sub100_shared import catalog
from sub100_shared.metrics import Metrics

from .pools import PoolKey, PoolLoad, sum_up
from .scaling import Scaler, Targets, demand
from .view import RegionView

REFRESH_MS: Final = 1_000.0

Labels = tuple[str, ...]


class PlacementMetrics:
    """Recorded once a decision."""

    def __init__(self, metrics: Metrics) -> None:
        self._duration = metrics.histogram(catalog.PLACEMENT_DURATION)
        self._placed = metrics.counter(catalog.PLACEMENTS)
        self._refused = metrics.counter(catalog.ADMISSION_REFUSED)

    def record(self, answer: Placement | Rejected, spent_ms: float) -> None:
        self._duration.record(spent_ms / 1e3)
        if isinstance(answer, Rejected):
            self._refused.add(1, answer.code)
        else:
            self._placed.add(1, "alone" if answer.prefill is None else "pair")


class FleetMetrics:
    """Gauges over the view; ``refresh`` sums the fleet up, so that a look costs nothing per worker."""

    def __init__(self, metrics: Metrics, view: RegionView, targets: Targets) -> None:
        self._view = view
        self._targets = targets
        self._scaler = Scaler(targets)
        self._pools: dict[PoolKey, PoolLoad] = {}
        self._wanted: dict[PoolKey, int] = {}
        self._refreshed_ms = float("-inf")
        self._lapsed = metrics.counter(catalog.FLEET_LAPSED)
        metrics.observe(catalog.PLACEMENTS_OPEN, lambda: len(view.inflight))
        metrics.observe(catalog.INDEX_BLOCKS, lambda: len(view.index))
        metrics.observe(catalog.INDEX_STALE, lambda: len(view.feed.wanting))
        metrics.observe(catalog.INDEX_GAPS, lambda: view.feed.num_gaps)
        metrics.observe(catalog.FLEET_WORKERS, self._workers)
        for metric, read in (
            (catalog.FLEET_HEARTBEAT_AGE, lambda pool: pool.heartbeat_age_s),
            (catalog.POOL_WAITING_TOKENS, lambda pool: pool.num_waiting_tokens),
            (catalog.POOL_REQUESTS, lambda pool: pool.num_requests),
            (catalog.POOL_OCCUPANCY, lambda pool: pool.occupancy),
            (catalog.POOL_KV_USAGE, lambda pool: pool.kv_usage),
            (catalog.POOL_TTFT, lambda pool: pool.ttft_ms / 1e3),
            (catalog.POOL_WORK, lambda pool: pool.work),
        ):
            metrics.observe(metric, self._by_pool(read))

        metrics.observe(catalog.POOL_DEMAND, self._demand)
        metrics.observe(catalog.POOL_WANTED, self._wanted_replicas)

    def refresh(self, now_ms: float) -> None:
        """Sum the fleet up, once every REFRESH_MS at most."""
        if now_ms - self._refreshed_ms < REFRESH_MS:
            return
        self._refreshed_ms = now_ms
        view = self._view
        view.workload.tick(now_ms)
        self._pools = sum_up(view.fleet.workers, view.predictor, view.workload, now_ms)
        self._wanted = self._scaler.update(self._pools, now_ms)

    def lapsed(self, num_workers: int) -> None:
        self._lapsed.add(num_workers)

    def _workers(self) -> Mapping[Labels, float]:
        return {
            (role, name, state): number
            for (role, name), pool in self._pools.items()
            for state, number in pool.num_by_state.items()
        }

    def _wanted_replicas(self) -> Mapping[Labels, float]:
        return {(role, name): number for (role, name), number in self._wanted.items()}

    def _demand(self) -> Mapping[Labels, float]:
        return {
            (role, name, signal): number
            for (role, name), pool in self._pools.items()
            for signal, number in demand(pool, self._targets).items()
        }

    def _by_pool(self, read: Callable[[PoolLoad], float]) -> Callable[[], Mapping[Labels, float]]:
        return lambda: {key: read(pool) for key, pool in self._pools.items()}

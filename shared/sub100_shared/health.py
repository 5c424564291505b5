"""How well a process runs: its event loop, its garbage collector, its connection to the bus."""

import asyncio
import gc
import time
from collections import deque
from collections.abc import Mapping
from typing import Final, Protocol

from . import catalog
from .metrics import Metrics
from .ops import Probe

TICK_S: Final = 0.1
MAX_KEPT_PAUSES: Final = 4_096


class Connection(Protocol):
    """What is read of the bus."""

    @property
    def is_connected(self) -> bool: ...

    @property
    def num_pending(self) -> int: ...

    @property
    def pending_bytes(self) -> int: ...

    num_reconnects: int
    num_slow_consumer_drops: int


class Health:
    """``watch`` is one bounded ticker: what it costs does not grow with load."""

    def __init__(self, metrics: Metrics, bus: Connection, probe: Probe) -> None:
        self._lag = metrics.histogram(catalog.LOOP_LAG)
        self._pause = metrics.histogram(catalog.GC_PAUSE)
        self._pauses: deque[tuple[int, float]] = deque(maxlen=MAX_KEPT_PAUSES)
        self._gc_began = 0.0
        metrics.observe(catalog.BUS_CONNECTED, lambda: float(bus.is_connected))
        metrics.observe(catalog.BUS_RECONNECTS, lambda: bus.num_reconnects)
        metrics.observe(catalog.BUS_DROPPED, lambda: bus.num_slow_consumer_drops)
        metrics.observe(catalog.BUS_PENDING_MESSAGES, lambda: bus.num_pending)
        metrics.observe(catalog.BUS_PENDING_BYTES, lambda: bus.pending_bytes)

        def ready() -> Mapping[tuple[str, ...], float]:
            found = probe()
            return {(found.state,): float(found.is_ready)}

        metrics.observe(catalog.SERVICE_READY, ready)

    async def watch(self) -> None:
        """Until cancelled."""
        gc.callbacks.append(self._on_gc)
        try:
            while True:
                due = time.perf_counter() + TICK_S
                await asyncio.sleep(TICK_S)
                self._lag.record(max(0.0, time.perf_counter() - due))
                while self._pauses:
                    generation, pause_s = self._pauses.popleft()
                    self._pause.record(pause_s, str(generation))
        finally:
            gc.callbacks.remove(self._on_gc)

    def _on_gc(self, phase: str, info: Mapping[str, int]) -> None:
        """Runs inside any allocation, even one under the metrics' own lock: it only takes a note."""
        if phase == "start":
            self._gc_began = time.perf_counter()
        else:
            self._pauses.append((info["generation"], time.perf_counter() - self._gc_began))

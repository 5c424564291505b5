"""Loop lag and collector pauses, as a scrape shows them."""

import asyncio
import contextlib
import gc
import time

from sub100_shared.health import TICK_S, Health
from sub100_shared.metrics import Metrics
from sub100_shared.ops import Readiness


class Counts:
    """What Health reads of a bus."""

    is_connected = True
    num_reconnects = 2
    num_slow_consumer_drops = 5
    num_pending = 7
    pending_bytes = 700


def _value(metrics: Metrics, series: str, **labels: str) -> float:
    metrics.read_states()
    for family in metrics.families():
        for sample in family.samples:
            if sample.name == series and sample.labels == labels:
                return float(sample.value)
    raise AssertionError(series)


async def _watched(metrics: Metrics, during: float) -> None:
    """Watch for ``during`` seconds, of which the loop is blocked for the first 0.15."""
    health = Health(metrics, Counts(), lambda: Readiness(True, "ready"))
    watching = asyncio.create_task(health.watch())
    await asyncio.sleep(0)
    gc.collect()
    time.sleep(TICK_S + 0.15)  # noqa: ASYNC251  # the stall that is to be seen
    await asyncio.sleep(during)
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching


async def test_lag_of_a_blocked_loop_is_seen() -> None:
    metrics = Metrics()
    await _watched(metrics, 0.01)

    num_short = _value(metrics, "sub100_loop_lag_seconds_bucket", le="0.1")
    assert _value(metrics, "sub100_loop_lag_seconds_count") > num_short
    assert _value(metrics, "sub100_loop_lag_seconds_sum") >= 0.15


async def test_collection_is_seen_by_generation_and_the_callback_goes_with_the_watch() -> None:
    metrics = Metrics()
    before = len(gc.callbacks)
    await _watched(metrics, 0.01)

    assert _value(metrics, "sub100_gc_pause_seconds_count", sub100_generation="2") >= 1
    assert _value(metrics, "sub100_gc_pause_seconds_sum", sub100_generation="2") > 0
    assert len(gc.callbacks) == before


async def test_bus_counters_are_shown() -> None:
    metrics = Metrics()
    Health(metrics, Counts(), lambda: Readiness(False, "draining"))

    assert _value(metrics, "sub100_bus_connected") == 1
    assert _value(metrics, "sub100_bus_reconnects_total") == 2
    assert _value(metrics, "sub100_bus_dropped_total") == 5
    assert _value(metrics, "sub100_bus_pending_messages") == 7
    assert _value(metrics, "sub100_bus_pending_size_bytes") == 700
    assert _value(metrics, "sub100_service_ready", sub100_state="draining") == 0

"""A client that goes away frees everything at once, whenever it goes. The absolute figure is ``make
bench-cancel``'s."""

import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.bus_watch import BusWatch
from tests.e2e.leaving import MOMENTS, freed_ms, num_left
from tests.e2e.slow import slow_stack
from tests.e2e.system import sim_only
from tests.patience import at_best
from tests.stack import Stack

pytestmark = sim_only

NUM_ABORTS = 9
MEDIAN_S = 0.4
"""Sooner than any heartbeat would tell."""


@pytest.fixture(scope="module")
def stack(tiny_model: Path) -> Iterator[Stack]:
    with slow_stack(tiny_model, 0.03) as running:
        yield running


@pytest.mark.parametrize("moment", MOMENTS)
def test_client_that_leaves_frees_engine_kv_and_bookkeeping(stack: Stack, bus: BusWatch, moment: str) -> None:

    def freed_after_s() -> float:
        times_ms = [freed_ms(stack, bus, MOMENTS[moment]) for _ in range(NUM_ABORTS)]
        assert min(times_ms) >= 0, "nothing was ever held"
        return statistics.median(times_ms) / 1e3

    at_best(freed_after_s, MEDIAN_S, "the median")
    assert num_left(stack) == 0

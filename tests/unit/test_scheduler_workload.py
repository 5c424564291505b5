import pytest

from sub100_scheduler.pools import PoolKey
from sub100_scheduler.workload import SMOOTHING_S, Workload

POOL: PoolKey = ("prefill", "default")
OTHER: PoolKey = ("decode", "default")


def test_workload_of_a_steady_stream_is_its_work_per_time() -> None:
    """Eight prompts a second of 250 ms each keep two workers busy."""
    workload = Workload()
    workload.tick(0.0)
    for second in range(1, 101):
        for _ in range(8):
            workload.add(POOL, num_tokens=500, work_ms=250.0)
        workload.tick(second * 1e3)

    assert workload.busy(POOL) == pytest.approx(2.0, rel=1e-3)
    assert workload.mean_tokens(POOL) == 500
    assert workload.busy(OTHER) == 0
    assert workload.mean_tokens(OTHER) == 0


def test_workload_fades_when_nothing_comes_any_more() -> None:
    workload = Workload()
    workload.tick(0.0)
    workload.add(POOL, num_tokens=10, work_ms=1_000.0)
    workload.tick(1_000.0)
    before = workload.busy(POOL)
    workload.tick(1_000.0 + SMOOTHING_S * 1e3)

    assert 0 < before < 0.1
    assert workload.busy(POOL) == pytest.approx(before * 0.3679, rel=1e-3)


def test_workload_does_not_depend_on_how_often_it_is_looked_at() -> None:
    coarse, fine = Workload(), Workload()
    coarse.tick(0.0)
    fine.tick(0.0)
    for ms in range(100, 60_100, 100):
        for workload in (coarse, fine):
            workload.add(POOL, num_tokens=1, work_ms=50.0)
        fine.tick(float(ms))
        if ms % 1_000 == 0:
            coarse.tick(float(ms))

    assert fine.busy(POOL) == pytest.approx(coarse.busy(POOL), rel=1e-6)


def test_workload_ignores_a_clock_that_stands_still() -> None:
    workload = Workload()
    workload.tick(5.0)
    workload.add(POOL, num_tokens=1, work_ms=50.0)
    workload.tick(5.0)

    assert workload.busy(POOL) == 0

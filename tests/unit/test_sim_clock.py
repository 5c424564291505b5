"""Virtual time passes in the order of its sleepers and only when it is told to."""

import asyncio

import pytest

from sub100_engine.sim import MonotonicClock, VirtualClock


async def test_virtual_clock_wakes_sleepers_in_order_of_time() -> None:
    clock = VirtualClock()
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, at: float) -> None:
        await clock.sleep_until(at)
        woken.append((name, clock.now()))

    async with asyncio.TaskGroup() as group:
        for name, at in (("late", 3.0), ("early", 1.0), ("past", -1.0)):
            group.create_task(sleeper(name, at))
        await clock.advance(2.0)
        assert woken == [("past", 0.0), ("early", 1.0)]
        assert clock.now() == 2.0
        await clock.advance(1.0)
    assert woken[-1] == ("late", 3.0)


async def test_virtual_clock_refuses_to_wait_for_what_never_comes() -> None:
    with pytest.raises(TimeoutError, match="nobody sleeps"):
        await VirtualClock().run(asyncio.Event().wait())


async def test_monotonic_clock_returns_at_the_time_or_later_and_yields_for_the_past() -> None:
    clock = MonotonicClock()
    at = clock.now() + 0.01
    await clock.sleep_until(at)
    assert clock.now() >= at
    has_run = asyncio.Event()
    asyncio.get_running_loop().call_soon(has_run.set)
    await clock.sleep_until(0.0)
    assert has_run.is_set()

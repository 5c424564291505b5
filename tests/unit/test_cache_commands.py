"""A burst takes turns with the connections that there are, and nobody waits longer than his time."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from sub100_cache.breaker import Breaker
from sub100_cache.store.commands import SLOW_S, Commands, StoreUnavailable

LIMIT = 2
LONG_S = 30.0


@pytest.fixture
async def commands() -> AsyncIterator[Commands]:
    commands = opened(LONG_S)
    yield commands
    await commands.close()


def opened(timeout_s: float) -> Commands:
    """Nothing is asked of the server: the tests bring what is to run."""
    commands = Commands(Redis.from_url("redis://127.0.0.1:1"), Breaker(SLOW_S), LIMIT, timeout_s=timeout_s)
    commands.breaker.probed("")
    return commands


class Turns:
    """Commands that end when they are told to, and say that they run."""

    def __init__(self) -> None:
        self.running: list[int] = []
        self.ends: list[asyncio.Future[int]] = []
        self.begun = asyncio.Event()

    async def command(self, number: int) -> int:
        end = asyncio.get_running_loop().create_future()
        self.running.append(number)
        self.ends.append(end)
        self.begun.set()
        await end
        return number

    async def has_begun(self, num: int) -> None:
        async with asyncio.timeout(LONG_S):
            while len(self.running) < num:
                self.begun.clear()
                await self.begun.wait()


async def test_burst_takes_turns_and_all_of_it_is_answered(commands: Commands) -> None:
    turns = Turns()
    asked: list[asyncio.Future[Any]] = [
        asyncio.ensure_future(commands.run(turns.command(number), LONG_S)) for number in range(5)
    ]
    for number in range(5):
        await turns.has_begun(min(5, number + LIMIT))
        assert len(turns.running) <= number + LIMIT
        turns.ends[number].set_result(number)
        assert await asked[number] == number
    assert turns.running == [0, 1, 2, 3, 4]


async def test_turn_that_does_not_come_in_time_is_unavailable_and_runs_never(commands: Commands) -> None:
    turns = Turns()
    busy = [asyncio.ensure_future(commands.run(turns.command(number), LONG_S)) for number in range(LIMIT)]
    await turns.has_begun(LIMIT)

    with pytest.raises(StoreUnavailable, match="too many commands"):
        await commands.run(turns.command(99), 0.01)

    for end in turns.ends:
        end.set_result(0)
    await asyncio.gather(*busy)
    again = asyncio.ensure_future(commands.run(turns.command(3), LONG_S))
    await turns.has_begun(LIMIT + 1)
    turns.ends[-1].set_result(3)
    assert (await again, turns.running) == (3, [0, 1, 3])


async def test_late_command_keeps_its_place_until_it_has_ended(commands: Commands) -> None:
    turns = Turns()
    for number in range(LIMIT):
        with pytest.raises(StoreUnavailable, match="late"):
            await commands.run(turns.command(number), 0.01)
    with pytest.raises(StoreUnavailable, match="too many commands"):
        await commands.run(turns.command(98), 0.01)

    turns.ends[0].set_result(0)
    last = asyncio.ensure_future(commands.run(turns.command(2), LONG_S))
    await turns.has_begun(LIMIT + 1)
    turns.ends[-1].set_result(2)
    assert (await last, turns.running) == (2, [0, 1, 2])
    turns.ends[1].set_result(1)


async def test_waiting_commands_are_refused_when_redis_goes_away_meanwhile(commands: Commands) -> None:
    turns = Turns()
    busy = [asyncio.ensure_future(commands.run(turns.command(number), LONG_S)) for number in range(LIMIT)]
    await turns.has_begun(LIMIT)
    waiting = asyncio.ensure_future(commands.run(turns.command(9), LONG_S))
    await asyncio.sleep(0)
    commands.breaker.failed("gone")
    for end in turns.ends:
        end.set_result(0)

    with pytest.raises(StoreUnavailable, match="gone"):
        await waiting
    await asyncio.gather(*busy)
    assert turns.running == [0, 1]


@pytest.mark.parametrize("leaves", [False, True], ids=["late", "caller has left"])
async def test_command_that_hangs_is_cut_and_its_connection_taken_for_dead(leaves: bool) -> None:
    commands = opened(0.05)
    turns = Turns()
    asked = asyncio.ensure_future(commands.run(turns.command(0), LONG_S if leaves else 0.01))
    await turns.has_begun(1)
    if leaves:
        asked.cancel()

    await asyncio.wait({asked, turns.ends[0]}, timeout=LONG_S)
    assert turns.ends[0].cancelled()
    assert (commands.breaker.is_open, commands.breaker.reason) == (True, "late")
    assert asked.cancelled() == leaves
    await commands.close()

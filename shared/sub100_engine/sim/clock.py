"""The time that the simulated engine lives in: the process's own, or a test's."""

import asyncio
import heapq
import itertools
import time
from collections.abc import Coroutine
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")

_SETTLE_TURNS: Final = 20
"""Turns of the event loop after which tasks that do no I/O have reached their next sleep."""


class Clock(Protocol):
    def now(self) -> float:
        """Monotonic seconds from an arbitrary origin."""
        ...

    async def sleep_until(self, at: float) -> None:
        """Return at ``at`` or later; yields to the event loop at least once, also for the past."""
        ...


class MonotonicClock:
    """Wall time."""

    def now(self) -> float:
        return time.monotonic()

    async def sleep_until(self, at: float) -> None:
        await asyncio.sleep(max(0.0, at - time.monotonic()))


class VirtualClock:
    """Time stands still until a test moves it, and then passes in the order of the sleepers."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._num_sleeps = 0

    def now(self) -> float:
        return self._now

    async def sleep_until(self, at: float) -> None:
        self._num_sleeps += 1
        if at <= self._now:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (at, next(self._order), woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass."""
        target = self._now + seconds
        await self._settle()
        while self._wake_next(target):
            await self._settle()
        self._now = target
        await self._settle()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Let time pass until ``work``, which must do no I/O, is done; raises TimeoutError if nobody
        sleeps and it still waits."""
        task = asyncio.ensure_future(work)
        num_sleeps = -1
        await self._settle()
        while not task.done():
            is_still = self._num_sleeps == num_sleeps
            num_sleeps = self._num_sleeps
            if not self._wake_next(float("inf")) and is_still:
                task.cancel()
                raise TimeoutError("nobody sleeps: the work would never end")
            await self._settle()
        return task.result()

    def _wake_next(self, limit: float) -> bool:
        while self._sleepers and self._sleepers[0][0] <= limit:
            at, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                self._now = at
                woken.set_result(None)
                return True
        return False

    @staticmethod
    async def _settle() -> None:
        for _ in range(_SETTLE_TURNS):
            await asyncio.sleep(0)

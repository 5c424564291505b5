"""Keeps a dead or hung store from being asked by every request.

::

    closed --(an error, or MAX_TIMEOUTS time-outs in a row)--> open --(a probe succeeds)--> closed

Open, nothing is asked: whoever wants something is told at once. Whoever owns the breaker probes the store
while it is open; a request never does.
"""

import asyncio
from collections.abc import Callable
from typing import Final

MAX_TIMEOUTS: Final = 3

Listener = Callable[[str], None]
"""Told why the breaker opened, or an empty string when it closed."""


class Breaker:
    """Starts open: a store that has never answered is not trusted with a request."""

    def __init__(self, on_change: Listener) -> None:
        self._on_change = on_change
        self._opened = asyncio.Event()
        self._opened.set()
        self._closed = asyncio.Event()
        self._num_timeouts = 0

    @property
    def is_open(self) -> bool:
        return self._opened.is_set()

    async def wait_open(self) -> None:
        await self._opened.wait()

    async def wait_closed(self) -> None:
        await self._closed.wait()

    def succeed(self) -> None:
        """The store has answered a request. Does not close the breaker: only a probe does."""
        self._num_timeouts = 0

    def fail(self, reason: str, *, is_timeout: bool) -> None:
        """A request was not answered."""
        self._num_timeouts = self._num_timeouts + 1 if is_timeout else MAX_TIMEOUTS
        if self._num_timeouts >= MAX_TIMEOUTS and not self.is_open:
            self._closed.clear()
            self._opened.set()
            self._on_change(reason)

    def close(self) -> None:
        """A probe has succeeded."""
        self._num_timeouts = 0
        if self.is_open:
            self._opened.clear()
            self._closed.set()
            self._on_change("")

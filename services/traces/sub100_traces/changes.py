"""Tells open pages that there is something new, and nothing else: they ask for what they show.

The writing thread calls ``notify``; each waiter is an async iterator on the event loop that yields the latest
version, however many were missed.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

MAX_WAITERS: Final = 256
HEARTBEAT_S: Final = 15.0
"""A stream says something at least this often, so that a client that left is noticed."""


class TooManyWaiters(RuntimeError):
    """MAX_WAITERS pages are open."""


class Changes:
    """Made on the event loop that will serve the waiters."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiters: set[asyncio.Event] = set()
        self._closed = False
        self.version = 0

    def notify(self) -> None:
        """Callable from any thread; nothing happens once the loop is closed."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._advance)

    def close(self) -> None:
        """End all iterators: open pages must not hold up a drain."""
        self._closed = True
        self._advance()

    async def watch(self) -> AsyncIterator[int]:
        """The present version at once, then each new one, and the same again after HEARTBEAT_S of silence.

        Raises TooManyWaiters before the first.
        """
        if len(self._waiters) >= MAX_WAITERS:
            raise TooManyWaiters
        changed = asyncio.Event()
        self._waiters.add(changed)
        try:
            while not self._closed:
                changed.clear()
                yield self.version
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        await changed.wait()
                except TimeoutError:
                    pass
        finally:
            self._waiters.discard(changed)

    def _advance(self) -> None:
        self.version += 1
        for waiter in self._waiters:
            waiter.set()

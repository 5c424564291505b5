"""What the services say of themselves on the bus, seen as the bus's operator."""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from sub100_proto import codec, subjects
from sub100_shared.bus import Bus, Incoming

CONNECT_TIMEOUT_S: Final = 15.0
STALE_S: Final = 3.5
"""A status comes once a second; three missed ones mean that nobody speaks any more."""


class Word(msgspec.Struct, frozen=True):
    """The last word of one instance. ``at``: monotonic seconds. Keyed by pid too: a restarted service
    is not ready because its predecessor was."""

    state: str
    detail: str
    pid: int
    at: float


class FleetWatch:
    """Listens from ``open`` to ``close``."""

    def __init__(self, bus: Bus, region: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._bus = bus
        self._region = region
        self._clock = clock
        self._words: dict[str, Word] = {}
        self._changed = asyncio.Event()

    @classmethod
    async def open(cls, url: str, password: str, region: str) -> "FleetWatch":
        """Raises TimeoutError if the bus does not answer."""
        connecting = Bus.connect(url, name="local", user="operator", password=password)
        watch = cls(await asyncio.wait_for(connecting, CONNECT_TIMEOUT_S), region)
        await watch.listen()
        return watch

    async def listen(self) -> None:
        await self._bus.listen(subjects.status_all(self._region), self.on_status)

    def on_status(self, message: Incoming) -> None:
        status = codec.decode_status(message.data)
        self._words[status.instance] = Word(status.state, status.detail, status.pid, self._clock())
        self._changed.set()

    def word(self, instance: str) -> Word | None:
        """None if it has said nothing lately."""
        word = self._words.get(instance)
        return word if word is not None and self._clock() - word.at < STALE_S else None

    def words(self) -> dict[str, Word]:
        """The last word of each instance that has spoken lately."""
        found = {name: self.word(name) for name in self._words}
        return {name: word for name, word in found.items() if word is not None}

    def ready(self, instances: Iterable[str]) -> set[str]:
        words = self.words()
        return {name for name in instances if name in words and words[name].state == "ready"}

    async def wait_change(self, timeout_s: float) -> None:
        """Returns at the next status, or after ``timeout_s``."""
        self._changed.clear()
        try:
            await asyncio.wait_for(self._changed.wait(), timeout_s)
        except TimeoutError:
            return

    async def close(self) -> None:
        await self._bus.close(1)

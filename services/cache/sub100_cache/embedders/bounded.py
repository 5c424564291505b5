"""An embedder as the service asks it: in time or not at all, and not twice for one question."""

import asyncio
import hashlib
from collections import OrderedDict
from typing import Final

import msgspec

from ..breaker import Breaker
from .api import Embedder, EmbedderUnavailable, WrongDimension

PROBE_TIMEOUT_S: Final = 2.0
SLOW_S: Final = 0.05
"""As long as any look-up waits for an embedder, unless the deployment allows more."""

_PROBE: Final = "Is the embedder well?"


class BoundedEmbedder:
    """Starts with an open breaker: ``probe`` closes it.

    Keeps the last ``num_kept`` vectors under a hash of their question: the fill that follows a look-up, and
    the look-up that a slow embedder answered too late, find them here.
    """

    def __init__(self, embedder: Embedder, breaker: Breaker, num_kept: int) -> None:
        self._embedder = embedder
        self._num_kept = num_kept
        self._kept: OrderedDict[bytes, bytes] = OrderedDict()
        self._running: set[asyncio.Future[bytes]] = set()
        self._is_closed = False
        self.id = embedder.id
        self.dimension = embedder.dimension
        self.breaker = breaker

    async def embed(self, tenant: str, text: str, timeout_s: float) -> bytes:
        """Raises EmbedderUnavailable after ``timeout_s`` at the latest, at once while the breaker is open.

        A vector is kept for its own ``tenant`` alone, or the time taken would tell one tenant what another
        has asked."""
        key = hashlib.blake2b(msgspec.msgpack.encode((tenant, text)), digest_size=16).digest()
        if (kept := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            return kept
        if self.breaker.is_open:
            raise EmbedderUnavailable(self.breaker.reason)
        running = asyncio.ensure_future(self._embedder.embed(text, timeout_s))
        self._running.add(running)
        running.add_done_callback(lambda done: self._on_done(key, done))
        done, _ = await asyncio.wait({running}, timeout=timeout_s)
        if not done:
            self.breaker.gave_up(running, timeout_s)
            raise EmbedderUnavailable("late")
        try:
            vector = running.result()
        except EmbedderUnavailable as error:
            if error.reason == "busy" or (error.reason == "late" and timeout_s >= SLOW_S):
                self.breaker.was_slow()
            raise
        self.breaker.answered()
        return vector

    async def probe(self) -> None:
        """Ask the embedder whether it is well and tell the breaker; never raises."""
        if self._is_closed:
            return
        try:
            await asyncio.wait_for(self._embedder.embed(_PROBE, PROBE_TIMEOUT_S), PROBE_TIMEOUT_S)
            self.breaker.probed("")
        except TimeoutError:
            self.breaker.probed("late")
        except EmbedderUnavailable as error:
            self.breaker.probed(error.reason)

    async def check(self) -> None:
        """Raises WrongDimension if the embedder answers with that; one that is away may yet come."""
        try:
            await asyncio.wait_for(self._embedder.embed(_PROBE, PROBE_TIMEOUT_S), PROBE_TIMEOUT_S)
        except WrongDimension:
            raise
        except (TimeoutError, EmbedderUnavailable):
            return

    async def close(self) -> None:
        """Idempotent."""
        self._is_closed = True
        for running in list(self._running):
            running.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._embedder.close()

    def _on_done(self, key: bytes, running: "asyncio.Future[bytes]") -> None:
        self._running.discard(running)
        if running.cancelled():
            return
        error = running.exception()
        if error is None:
            self._kept[key] = running.result()
            if len(self._kept) > self._num_kept:
                self._kept.popitem(last=False)
        elif isinstance(error, EmbedderUnavailable) and error.reason not in ("late", "busy"):
            self.breaker.failed(error.reason)

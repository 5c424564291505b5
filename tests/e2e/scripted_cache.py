"""A cache service that says what a test scripts, on the stack's real bus; the real one is stopped.

``with scripted_cache(stack) as cache``: ``cache.reply`` answers look-ups after ``cache.delay_s`` or, if
``cache.holds`` says so, when ``cache.release`` is called; what ingress publishes to the cache is in
``cache.written``.
"""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Final

from tests.e2e.loop_thread import loop_thread
from tests.patience import PATIENCE_S, eventually
from tests.stack import Stack

from sub100_proto import codec, subjects
from sub100_proto.cache import (
    CacheAlias,
    CachedAnswer,
    CacheFill,
    CacheHit,
    CacheInvalidate,
    CacheInvalidated,
    CacheLookup,
    CacheMiss,
    CacheObserved,
    CacheReply,
    CacheStats,
    CacheStatsQuery,
)
from sub100_shared.bus import Bus, Incoming

REGION: Final = "local"
Written = CacheFill | CacheAlias | CacheObserved


def answer(*pieces: str) -> CachedAnswer:
    return CachedAnswer(
        model="test-model",
        pieces=pieces,
        finish_reason="stop",
        num_prompt_tokens=11,
        num_completion_tokens=len(pieces),
    )


def hit(*pieces: str, tier: str = "semantic", similarity: float = 0.95) -> CacheHit:
    return CacheHit(answer=answer(*pieces), tier=tier, age_s=3.0, similarity=similarity, generation=b"g1")


class ScriptedCache:
    def __init__(self) -> None:
        self.reply: Callable[[CacheLookup], CacheReply] = lambda _: CacheMiss(generation=b"g1")
        self.delay_s = 0.0
        self.holds: Callable[[CacheLookup], bool] = lambda _: False
        self._released = threading.Event()
        self.admin: Callable[[CacheInvalidate | CacheStatsQuery], CacheInvalidated | CacheStats | None] = (
            lambda _: None
        )
        self._lock = threading.Lock()
        self._lookups: list[CacheLookup] = []
        self._written: list[Written] = []

    async def on_lookup(self, msg: Incoming) -> bytes | None:
        lookup = codec.decode_cache_lookup(msg.data)
        reply = self.reply(lookup)
        await asyncio.sleep(self.delay_s)
        if self.holds(lookup):
            await asyncio.to_thread(self._released.wait, PATIENCE_S)
        with self._lock:
            self._lookups.append(lookup)
        return codec.encode(reply)

    async def on_admin(self, msg: Incoming) -> bytes | None:
        """None: no reply at all."""
        reply = self.admin(codec.decode_cache_admin(msg.data))
        return None if reply is None else codec.encode(reply)

    def release(self) -> None:
        """Answer what is held, and hold nothing from now on."""
        self._released.set()

    def on_write(self, msg: Incoming) -> None:
        with self._lock:
            self._written.append(codec.decode_cache_write(msg.data))

    @property
    def lookups(self) -> list[CacheLookup]:
        """Those that were answered."""
        with self._lock:
            return list(self._lookups)

    @property
    def written(self) -> list[Written]:
        with self._lock:
            return list(self._written)

    def wait(self, is_so: Callable[[], bool], what: str) -> None:
        eventually(is_so, what)


@contextlib.contextmanager
def scripted_cache(stack: Stack) -> Iterator[ScriptedCache]:
    """Takes the place of every cache replica of the stack, its name included, until the block ends."""
    replicas = [replica for replica in stack.replicas.values() if replica.service == "cache"]
    for replica in replicas:
        replica.signal(signal.SIGKILL)
        replica.wait()
    cache = ScriptedCache()

    async def serve() -> Bus:
        bus = await Bus.connect(stack.nats.url, name="scripted-cache")
        for name in (*(replica.instance for replica in replicas), ""):
            lookup, stats, fill = (
                subjects.of_replica(shared(REGION), name)
                for shared in (subjects.cache_lookup, subjects.cache_stats, subjects.cache_fill)
            )
            await bus.serve(lookup, cache.on_lookup, queue="cache", max_inflight=256)
            await bus.serve(stats, cache.on_admin, queue="cache", max_inflight=16)
            await bus.listen(fill, cache.on_write)
        return bus

    with loop_thread("scripted cache") as loop:
        bus = loop.run(serve())
        try:
            yield cache
        finally:
            loop.run(bus.close(1))
            for replica in replicas:
                replica.start()
            stack.wait_ready(*(replica.instance for replica in replicas))

"""Entries in Redis; the only importer of redis.

No caller waits longer than its own time-out. A command that is late goes on by itself, within
``COMMAND_TIMEOUT_S``: cancelling it would close its connection, and where connecting takes longer than
an allotment no look-up would ever be answered.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.maint_notifications import MaintNotificationsConfig

from sub100_proto.cache import CachedAnswer

from .breaker import Breaker
from .entries import UnreadableEntry, decode_entry, encode_entry, entry_key

_log = logging.getLogger(__name__)

COMMAND_TIMEOUT_S: Final = 1.0
WRITE_TIMEOUT_S: Final = 1.0
PROBE_TIMEOUT_S: Final = 0.5
_WRONG_TYPE: Final = "WRONGTYPE"

T = TypeVar("T")
WallClock = Callable[[], float]
"""Unix time in seconds: an entry's age spans processes and restarts."""


class StoreUnavailable(Exception):
    """Redis is away, slow, or full of commands nobody waits for; nothing is known of the entry."""


class Found(msgspec.Struct, frozen=True):
    answer: CachedAnswer
    age_s: float


class Store:
    """All methods raise StoreUnavailable, at once while the breaker is open."""

    def __init__(self, client: Redis, breaker: Breaker, wall_clock: WallClock, limit: int) -> None:
        self._redis = client
        self._wall_clock = wall_clock
        self._limit = limit
        self._running: set[asyncio.Future[Any]] = set()
        self._is_closed = False
        self.breaker = breaker

    async def get(self, tenant: str, digest: bytes, timeout_s: float) -> Found | None:
        """The entry, or None. Raises UnreadableEntry, having deleted it, and ValueError for a bad digest."""
        key = entry_key(tenant, digest)
        try:
            value: Any = await self._run(self._redis.get(key), timeout_s)
            if value is None:
                return None
            stored_at_s, answer = decode_entry(value)
        except ResponseError as error:
            if not str(error).startswith(_WRONG_TYPE):
                raise StoreUnavailable(_reason(error)) from error
            await self._delete(key)
            raise UnreadableEntry from error
        except UnreadableEntry:
            await self._delete(key)
            raise
        return Found(answer, max(0.0, self._wall_clock() - stored_at_s))

    async def put(self, tenant: str, digest: bytes, answer: CachedAnswer, *, ttl_s: int, limit: int) -> bool:
        """Store for ``ttl_s`` from now, replacing what is there; False if it has more than ``limit`` bytes
        or Redis refuses to write. Raises ValueError for a bad digest."""
        key = entry_key(tenant, digest)
        value = encode_entry(self._wall_clock(), answer)
        if len(value) > limit:
            return False
        try:
            await self._run(self._redis.set(key, value, ex=ttl_s), WRITE_TIMEOUT_S)
        except ResponseError as error:  # out of memory, read-only replica
            _log.warning("fill refused by Redis", extra={"error": type(error).__name__})
            return False
        return True

    async def probe(self) -> None:
        """Ask Redis whether it is well and tell the breaker; never raises, does nothing once closed."""
        if self._is_closed:
            return
        try:
            await asyncio.wait_for(self._redis.ping(), PROBE_TIMEOUT_S)
            self.breaker.probed("")
        except (RedisError, OSError, TimeoutError) as error:
            self.breaker.probed(_reason(error))

    async def close(self) -> None:
        """Idempotent."""
        self._is_closed = True
        running = list(self._running)
        for command in running:
            command.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._redis.aclose()

    async def _delete(self, key: str) -> None:
        """As well as it goes: an entry that stays is found unreadable again."""
        with contextlib.suppress(ResponseError, StoreUnavailable):
            await self._run(self._redis.delete(key), WRITE_TIMEOUT_S)

    async def _run(self, command: Awaitable[T], timeout_s: float) -> T:
        """The command's result in time; also raises ResponseError: Redis is there and said no."""
        if self.breaker.is_open or len(self._running) >= self._limit:
            _discard(command)
            raise StoreUnavailable(self.breaker.reason if self.breaker.is_open else "too many commands")
        running = asyncio.ensure_future(command)
        self._running.add(running)
        running.add_done_callback(self._on_done)
        done, _ = await asyncio.wait({running}, timeout=timeout_s)
        if not done:
            self.breaker.was_slow()
            raise StoreUnavailable("late")
        try:
            result = running.result()
        except ResponseError:
            raise
        except (RedisError, OSError) as error:
            raise StoreUnavailable(_reason(error)) from error
        self.breaker.answered()
        return result

    def _on_done(self, command: asyncio.Future[Any]) -> None:
        """Runs for late commands too: their failure is news that nobody waits for."""
        self._running.discard(command)
        if command.cancelled():
            return
        error = command.exception()
        if isinstance(error, RedisConnectionError | RedisTimeoutError | OSError):
            self.breaker.failed(_reason(error))


def open_store(
    url: str, *, max_connections: int, wall_clock: WallClock, password: str | None = None
) -> Store:
    """Connects at the first call; raises ValueError for a URL that is not one of Redis.

    ``password`` is for a URL that names none.
    """
    client: Redis = Redis.from_url(
        url,
        password=password,
        # Look-ups are bounded by the limit below; the probe and deletions need a connection beside them.
        max_connections=max_connections + 8,
        socket_timeout=COMMAND_TIMEOUT_S,
        socket_connect_timeout=COMMAND_TIMEOUT_S,
        # A caller has no time for a second try; the breaker's probe is the retry.
        retry=Retry(NoBackoff(), 0),
        # With notifications on, redis-py does not notice that an idle connection was closed.
        maint_notifications_config=MaintNotificationsConfig(enabled=False),
        driver_info=None,
    )
    return Store(client, Breaker(), wall_clock, max_connections)


def _discard(command: Awaitable[Any]) -> None:
    close = getattr(command, "close", None)
    if close is not None:
        close()


def _reason(error: Exception) -> str:
    """Bounded, and without the URL, which may hold a password."""
    return "late" if isinstance(error, TimeoutError) else type(error).__name__

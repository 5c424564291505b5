"""The connection to Redis, and the bounds on what may be asked of it.

No caller waits longer than its own time-out, for its turn and the answer together. A command that is late
goes on by itself, within ``COMMAND_TIMEOUT_S``: cancelling it would close its connection, and where
connecting takes longer than an allotment no look-up would ever be answered. That bound is kept here, for
late commands only: the client's own time-out is a task and several timers for each command that is in time.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any, Final, TypeVar

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisClusterException, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.maint_notifications import MaintNotificationsConfig

from ..breaker import Breaker
from .lines import Lines

COMMAND_TIMEOUT_S: Final = 3.0
"""Connecting to all nodes of a cluster included."""

CONNECT_TIMEOUT_S: Final = 1.0
WRITE_TIMEOUT_S: Final = 1.0
SLOW_S: Final = 0.01
"""Ten times what a command takes on a good day."""

PROBE_TIMEOUT_S: Final = 0.5
SCAN_COUNT: Final = 500

T = TypeVar("T")


class StoreUnavailable(Exception):
    """Redis is away, slow, or full of commands nobody waits for; nothing is known of the entry."""


def is_spoiled(error: Exception) -> bool:
    """Redis answers that a key, or a field, does not hold what the command is for: it will not by itself."""
    return any(each in str(error) for each in ("WRONGTYPE", "not an integer", "would overflow"))


class TimeLeft:
    """What is left of ``timeout_s`` for one question, over all its round trips."""

    def __init__(self, timeout_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._until_s = self._loop.time() + timeout_s

    def s(self) -> float:
        return max(0.0, self._until_s - self._loop.time())


class Commands:
    """All methods but ``probe`` and ``close`` raise StoreUnavailable, at once while the breaker is open."""

    def __init__(
        self, client: Redis, breaker: Breaker, limit: int, *, timeout_s: float = COMMAND_TIMEOUT_S
    ) -> None:
        """``timeout_s``: no command goes on for longer."""
        self.client = client
        self.breaker = breaker
        self._lines = None if isinstance(client, RedisCluster) else Lines(client.connection_pool)
        self._timeout_s = timeout_s
        self._free = asyncio.Semaphore(limit)
        self._running: set[asyncio.Future[Any]] = set()
        self._is_closed = False

    async def ask(self, commands: Sequence[Sequence[Any]], timeout_s: float) -> list[Any]:
        """The replies to commands about one tenant, sent together. What Redis refuses is among them as its
        error; of a cluster that may also be an error of a connection."""
        if self._lines is not None:
            return await self.run(self._lines.ask(commands), timeout_s)
        pipe = self.client.pipeline(transaction=False)
        for command in commands:
            pipe.execute_command(*command)
        return await self.run(pipe.execute(raise_on_error=False), timeout_s)

    async def run(self, command: Awaitable[T], timeout_s: float) -> T:
        """The command's result in time; also raises ResponseError: Redis is there and said no."""
        left = TimeLeft(timeout_s)
        try:
            await self._admit(left)
        except StoreUnavailable:
            _discard(command)
            raise
        running = asyncio.ensure_future(command)
        self._running.add(running)
        running.add_done_callback(self._on_done)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._timeout_s
        try:
            done, _ = await asyncio.wait({running}, timeout=left.s())
        finally:
            if not running.done():
                loop.call_at(until_s, self._cut, running)
        if not done:
            self.breaker.gave_up(running, timeout_s)
            raise StoreUnavailable("late")
        try:
            result = running.result()
        except ResponseError:
            raise
        except (RedisError, RedisClusterException, OSError) as error:
            raise StoreUnavailable(_reason(error)) from error
        self.breaker.answered()
        return result

    async def _admit(self, left: TimeLeft) -> None:
        """Wait for a turn: a burst takes turns with the connections that there are."""
        self._fail_if_open()
        if not self._free.locked():
            await self._free.acquire()  # at once
            return
        try:
            async with asyncio.timeout(left.s()):
                await self._free.acquire()
        except TimeoutError:
            raise StoreUnavailable("too many commands") from None
        try:
            self._fail_if_open()
        except StoreUnavailable:
            self._free.release()
            raise

    def _fail_if_open(self) -> None:
        if self.breaker.is_open:
            raise StoreUnavailable(self.breaker.reason)

    async def scan(self, match: str, timeout_s: float) -> AsyncIterator[list[bytes]]:
        """The keys that match, over all nodes, a page at a time; also raises ResponseError."""
        nodes: list[Any] = [None]
        if isinstance(self.client, RedisCluster):
            await self.run(self.client.initialize(), timeout_s)
            nodes = self.client.get_primaries()
        for node in nodes:
            where: Any = {} if node is None else {"target_nodes": node}
            cursor: Any = 0
            while True:
                page: Any = self.client.scan(cursor, match=match, count=SCAN_COUNT, **where)
                cursor, keys = await self.run(page, timeout_s)
                if node is not None:
                    (cursor,) = cursor.values()
                yield keys
                if not cursor:
                    break

    async def delete(self, *keys: str, timeout_s: float = WRITE_TIMEOUT_S) -> None:
        """As well as it goes: an entry that stays is found unreadable again."""
        with contextlib.suppress(ResponseError, StoreUnavailable):
            await self.run(self.client.delete(*keys), timeout_s)

    async def probe(self) -> None:
        """Ask Redis whether it is well and tell the breaker; never raises, does nothing once closed."""
        if self._is_closed:
            return
        try:
            await asyncio.wait_for(self.client.ping(), PROBE_TIMEOUT_S)
            self.breaker.probed("")
        except (RedisError, RedisClusterException, OSError, TimeoutError) as error:
            self.breaker.probed(_reason(error))

    async def close(self) -> None:
        """Idempotent."""
        self._is_closed = True
        running = list(self._running)
        for command in running:
            command.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if self._lines is not None:
            await self._lines.close()
        await self.client.aclose()

    def _cut(self, command: asyncio.Future[Any]) -> None:
        """Its time is over: so is its connection's."""
        if not command.done():
            self.breaker.failed("late")
            command.cancel()

    def _on_done(self, command: asyncio.Future[Any]) -> None:
        """Runs for late commands too: their failure is news that nobody waits for."""
        self._running.discard(command)
        self._free.release()
        if command.cancelled():
            return
        error = command.exception()
        if isinstance(error, RedisConnectionError | RedisTimeoutError | RedisClusterException | OSError):
            self.breaker.failed(_reason(error))


def open_commands(
    url: str, *, max_connections: int, password: str | None = None, is_cluster: bool = False
) -> Commands:
    """Connects at the first call; raises ValueError for a URL that is not one of Redis.

    ``password`` is for a URL that names none. ``is_cluster``: the URL is that of any node of a Redis Cluster,
    and ``max_connections`` are to each.
    """
    options: dict[str, Any] = {
        "password": password,
        # Look-ups are bounded by the limit below; the probe and deletions need a connection beside them.
        "max_connections": max_connections + 8,
        "socket_timeout": None,
        "protocol": 3,
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        # A caller has no time for a second try; the breaker's probe is the retry.
        "retry": Retry(NoBackoff(), 0),
        # With notifications on, redis-py does not notice that an idle connection was closed.
        "maint_notifications_config": MaintNotificationsConfig(enabled=False),
        "driver_info": None,
    }
    opened: Any = RedisCluster if is_cluster else Redis
    client: Redis = opened.from_url(url, **options)
    return Commands(client, Breaker(SLOW_S), max_connections)


def _discard(command: Awaitable[Any]) -> None:
    close = getattr(command, "close", None)
    if close is not None:
        close()


def _reason(error: Exception) -> str:
    """Bounded, and without the URL, which may hold a password."""
    return "late" if isinstance(error, TimeoutError) else type(error).__name__

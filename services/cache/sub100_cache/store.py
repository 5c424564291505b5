"""The key-value store: the only importer of redis.

No command is retried, every one is bounded by its caller's time, and everything that can go wrong on the
way is StoreUnavailable. A command that ran out of time costs its connection, so that a late reply can
never be read as the answer to another command.
"""

import asyncio
from typing import Final, Protocol
from urllib.parse import urlsplit

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

CONNECT_TIMEOUT_S: Final = 2.0
CLOSE_TIMEOUT_S: Final = 2.0


class StoreUnavailable(Exception):
    """The store did not do it. ``is_timeout``: it may still be alive, only slow."""

    def __init__(self, reason: str, *, is_timeout: bool = False) -> None:
        super().__init__(reason)
        self.is_timeout = is_timeout


class StoreRefused(StoreUnavailable):
    """The store answered that it will not (no memory left, wrong type): it is well, the command is not."""


class Store(Protocol):
    """Bytes by key, each with a time to live. Every call raises StoreUnavailable."""

    async def get(self, key: str, *, timeout_s: float) -> bytes | None: ...

    async def put(self, key: str, value: bytes, *, ttl_s: int, timeout_s: float) -> None: ...

    async def delete(self, key: str, *, timeout_s: float) -> None: ...

    async def ping(self, *, timeout_s: float) -> None: ...


class RedisStore:
    """A Store on one Redis. Connects when first used."""

    def __init__(self, url: str, *, max_connections: int) -> None:
        self._pool = BlockingConnectionPool.from_url(
            url,
            max_connections=max_connections,
            timeout=None,
            retry=Retry(NoBackoff(), 0),
            socket_connect_timeout=CONNECT_TIMEOUT_S,
        )
        self._redis = Redis(connection_pool=self._pool)
        parts = urlsplit(url)
        self.address = f"{parts.hostname}:{parts.port or 6379}"
        """For people; never the password."""

    async def get(self, key: str, *, timeout_s: float) -> bytes | None:
        try:
            async with asyncio.timeout(timeout_s):
                value = await self._redis.get(key)
        except (RedisError, OSError, TimeoutError) as error:
            raise self._unavailable(error) from error
        return value if isinstance(value, bytes) else None

    async def put(self, key: str, value: bytes, *, ttl_s: int, timeout_s: float) -> None:
        """``ttl_s`` counts from now; reading never renews it."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._redis.set(key, value, ex=ttl_s)
        except (RedisError, OSError, TimeoutError) as error:
            raise self._unavailable(error) from error

    async def delete(self, key: str, *, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._redis.delete(key)
        except (RedisError, OSError, TimeoutError) as error:
            raise self._unavailable(error) from error

    async def ping(self, *, timeout_s: float) -> None:
        """On a new connection: those that a dead server left behind say nothing about a live one."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._pool.disconnect(inuse_connections=False)
                await self._redis.ping()
        except (RedisError, OSError, TimeoutError) as error:
            raise self._unavailable(error) from error

    async def close(self) -> None:
        """Idempotent and bounded."""
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._redis.aclose()
                await self._pool.disconnect()
        except (RedisError, OSError, TimeoutError):
            return

    def _unavailable(self, error: Exception) -> StoreUnavailable:
        if isinstance(error, ResponseError):
            return StoreRefused(f"Redis at {self.address} refused: {type(error).__name__}")
        # asyncio's TimeoutError: our own time ran out. Redis's own errors name no key and no value.
        reason = f"Redis at {self.address}: {error or type(error).__name__}"
        return StoreUnavailable(reason, is_timeout=isinstance(error, TimeoutError))

"""Connections to one Redis that commands of look-ups are sent over.

The client's own pool takes twice as long to lend a connection and to take it back as Redis takes to answer; a
look-up pays for that two or three times. These are connections of the same kind, made by the same pool.
"""

from collections.abc import Sequence
from typing import Any

from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError


class Lines:
    """As many as were ever needed at once: whoever asks is bounded by ``Commands``."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._free: list[AbstractConnection] = []

    async def ask(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """The replies to commands that are sent together; what Redis refuses is among them as its error.

        Raises RedisError and OSError as the client does. Cut short, it closes its connection."""
        line = self._free.pop() if self._free else self._pool.make_connection()  # type: ignore[no-untyped-call]
        is_good = False
        try:
            await self._pool.ensure_connection(line)
            await line.send_packed_command(line.pack_commands(commands))
            replies = [await _reply(line) for _ in commands]
            is_good = True
            return replies
        finally:
            if is_good:
                self._free.append(line)
            else:
                await line.disconnect(nowait=True)

    async def close(self) -> None:
        """Those that are in use are closed by whoever cuts their commands short. Idempotent."""
        lines, self._free = self._free, []
        for line in lines:
            await line.disconnect()


async def _reply(line: AbstractConnection) -> Any:
    try:
        return await line.read_response()
    except ResponseError as error:
        return error

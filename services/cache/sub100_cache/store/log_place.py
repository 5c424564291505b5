"""How far this region's store has come in the log of invalidations."""

from typing import Any, Final

import msgspec
from redis.exceptions import ResponseError

from .commands import WRITE_TIMEOUT_S, Commands, StoreUnavailable

_KEY: Final = "sub100:cache:log:v2"


class Place(msgspec.Struct, frozen=True):
    """A place in one life of the log, its ``identity``. Positions of different lives say nothing about each
    other: where they meet, another life's counts as 0. The default: no log is known, as after a flush."""

    identity: int = 0
    position: int = 0


class LogPlace:
    """In the store itself, so that one that goes back in time is seen to; it outlives what the store keeps by
    being read. All methods raise StoreUnavailable."""

    def __init__(self, commands: Commands, max_ttl_s: float) -> None:
        """``max_ttl_s``: no entry is kept longer."""
        self._commands = commands
        self._ttl_ms = int(max_ttl_s * 1e3)

    async def read(self) -> Place:
        pipe = self._commands.client.pipeline(transaction=False)
        pipe.hmget(_KEY, ["identity", "position"])
        pipe.pexpire(_KEY, self._ttl_ms)
        (identity, position), _ = await self._run(pipe.execute())
        return Place(int(identity), int(position)) if identity is not None else Place()

    async def write(self, place: Place) -> None:
        fields: dict[Any, Any] = {"identity": place.identity, "position": place.position}
        pipe = self._commands.client.pipeline(transaction=True)
        pipe.hset(_KEY, mapping=fields)
        pipe.pexpire(_KEY, self._ttl_ms)
        await self._run(pipe.execute())

    async def _run(self, command: Any) -> Any:
        try:
            return await self._commands.run(command, WRITE_TIMEOUT_S)
        except ResponseError as error:
            raise StoreUnavailable(type(error).__name__) from error

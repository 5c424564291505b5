"""How far this region's store has come in the log of invalidations."""

from typing import Any, Final

import msgspec
from redis.exceptions import ResponseError

from .commands import WRITE_TIMEOUT_S, Commands, StoreUnavailable

_KEY: Final = "sub100:cache:log:v1"


class Place(msgspec.Struct, frozen=True):
    """``identity`` is the log's life; empty: the store knows of no log, as after a flush."""

    identity: str = ""
    position: int = 0


class LogPlace:
    """In the store itself, so that one that goes back in time is seen to. All methods raise
    StoreUnavailable."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    async def read(self) -> Place:
        identity, position = await self._run(self._commands.client.hmget(_KEY, ["identity", "position"]))
        return Place(identity.decode(), int(position)) if identity is not None else Place()

    async def write(self, place: Place) -> None:
        fields: dict[Any, Any] = {"identity": place.identity, "position": place.position}
        await self._run(self._commands.client.hset(_KEY, mapping=fields))

    async def _run(self, command: Any) -> Any:
        try:
            return await self._commands.run(command, WRITE_TIMEOUT_S)
        except ResponseError as error:
            raise StoreUnavailable(type(error).__name__) from error

"""What each tenant has stored: how many entries and bytes, and which of them makes room first.

Redis forgets by itself (an end, or its own lack of memory): the ledger learns of ends with every write, and
of everything else when it is reconciled.
"""

from typing import Any, Final

import msgspec
from redis.exceptions import ResponseError

from . import scripts
from .commands import WRITE_TIMEOUT_S, Commands, StoreUnavailable
from .entries import ledger_keys, ledger_names

_PAGE: Final = 256
_SUM: Final = b"#"


class Quota(msgspec.Struct, frozen=True):
    """Bytes are those of answers and vectors as written, without what Redis needs to hold them."""

    max_entries: int
    max_bytes: int


class Ledger:
    """All methods raise StoreUnavailable."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._forget = commands.client.register_script(scripts.FORGET)

    async def size(self, tenant: str) -> tuple[int, int]:
        """Entries and aliases, and their bytes."""
        expiry, sizes = ledger_keys(tenant)
        num = await self._run(self._commands.client.zcard(expiry))
        total = await self._run(self._commands.client.hget(sizes, "#"))
        return int(num), int(total or 0)

    async def forget(self, tenant: str, digests: list[str]) -> int:
        """Delete entries with their vectors; the number of keys that were there. Digests in hexadecimal."""
        return await self._script(tenant, "all", digests)

    async def reconcile(self, tenant: str) -> None:
        """Forget what has no entry any more."""
        cursor = 0
        while True:
            command = self._commands.client.hscan(ledger_keys(tenant)[1], cursor, count=_PAGE)
            cursor, found = await self._run(command)
            digests = [name.decode() for name in found if name != _SUM]
            for start in range(0, len(digests), _PAGE):
                await self._script(tenant, "gone", digests[start : start + _PAGE])
            if not cursor:
                return

    async def _script(self, tenant: str, which: str, digests: list[str]) -> int:
        args = [*ledger_names(tenant), which, *digests]
        return int(await self._run(self._forget(keys=ledger_keys(tenant), args=args)))

    async def _run(self, command: Any) -> Any:
        try:
            return await self._commands.run(command, WRITE_TIMEOUT_S)
        except ResponseError as error:
            raise StoreUnavailable(type(error).__name__) from error

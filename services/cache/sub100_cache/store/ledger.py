"""What each tenant has stored: how many entries and bytes, and which of them makes room first.

Redis forgets by itself (an end, or its own lack of memory): the ledger learns of ends with every write, and
of everything else when it is reconciled. A ledger that cannot be read begins anew with the next script
that uses it.
"""

import logging
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from redis.exceptions import ResponseError

from . import scripts
from .commands import WRITE_TIMEOUT_S, Commands, StoreUnavailable
from .entries import ledger_keys, ledger_names

_log = logging.getLogger(__name__)

_PAGE: Final = 256
_SUM: Final = b"#"


class Quota(msgspec.Struct, frozen=True):
    """Bytes are those of answers and vectors as written, without what Redis needs to hold them."""

    max_entries: int
    max_bytes: int


def warn(tenant: str) -> None:
    _log.warning("unreadable ledger begun anew", extra={"tenant": tenant})


class Ledger:
    """All methods raise StoreUnavailable."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._forget = commands.client.register_script(scripts.FORGET)

    async def size(self, tenant: str) -> tuple[int, int]:
        """Entries and aliases, and their bytes."""
        _, num_entries, num_bytes = await self._script(tenant, "gone", [])
        return num_entries, num_bytes

    async def forget(self, tenant: str, digests: list[str]) -> int:
        """Delete entries with their vectors; the number of keys that were there. Digests in hexadecimal."""
        num, _, _ = await self._script(tenant, "all", digests)
        return num

    async def reconcile(self, tenant: str) -> None:
        """Forget what has no entry any more."""
        cursor = 0
        await self._script(tenant, "gone", [])
        while True:
            command = self._commands.client.hscan(ledger_keys(tenant)[1], cursor, count=_PAGE)
            cursor, found = await self._run(command)
            digests = [name for name in found if name != _SUM]
            for start in range(0, len(digests), _PAGE):
                await self._script(tenant, "gone", digests[start : start + _PAGE])
            if not cursor:
                return

    async def _script(self, tenant: str, which: str, digests: Sequence[str | bytes]) -> tuple[int, int, int]:
        """Keys that went, entries that are left, and their bytes."""
        args = [*ledger_names(tenant), which, *digests]
        num, was_spoiled, num_entries, num_bytes = await self._run(
            self._forget(keys=ledger_keys(tenant), args=args)
        )
        if was_spoiled:
            warn(tenant)
        return num, num_entries, num_bytes

    async def _run(self, command: Any) -> Any:
        try:
            return await self._commands.run(command, WRITE_TIMEOUT_S)
        except ResponseError as error:
            raise StoreUnavailable(type(error).__name__) from error

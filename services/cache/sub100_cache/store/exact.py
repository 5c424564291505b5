"""The exact tier: what was kept under a digest."""

from typing import Any, Final

from redis.exceptions import ResponseError

from .commands import Commands, StoreUnavailable
from .entries import Alias, Entry, Kept, UnreadableEntry, decode_entry, entry_key

_WRONG_TYPE: Final = "WRONGTYPE"


class ExactTier:
    """All methods raise StoreUnavailable, and ValueError for a digest of the wrong length. What cannot be
    read is deleted."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    async def get(self, tenant: str, digest: bytes, timeout_s: float) -> Entry | None:
        """The entry under ``digest``, or the one that an alias there names: one round trip, two for an alias.

        Raises UnreadableEntry."""
        kept = await self._get(tenant, digest, timeout_s)
        if not isinstance(kept, Alias):
            return kept
        target = await self._get(tenant, kept.target, timeout_s)
        if isinstance(target, Entry) and target.scope == kept.scope:
            return target
        await self._commands.delete(entry_key(tenant, digest))
        return None

    async def get_many(self, tenant: str, digests: list[bytes], timeout_s: float) -> list[Entry | None]:
        """In one round trip; None for what is not there, is an alias, or could not be read."""
        keys = [entry_key(tenant, digest) for digest in digests]
        try:
            values: list[Any] = await self._commands.run(self._commands.client.mget(keys), timeout_s)
        except ResponseError as error:
            raise StoreUnavailable(type(error).__name__) from error
        found: list[Entry | None] = []
        for digest, key, value in zip(digests, keys, values, strict=True):
            try:
                kept = None if value is None else decode_entry(value, tenant, digest)
            except UnreadableEntry:
                await self._commands.delete(key)
                kept = None
            found.append(kept if isinstance(kept, Entry) else None)
        return found

    async def _get(self, tenant: str, digest: bytes, timeout_s: float) -> Kept | None:
        key = entry_key(tenant, digest)
        try:
            value: Any = await self._commands.run(self._commands.client.get(key), timeout_s)
            return None if value is None else decode_entry(value, tenant, digest)
        except ResponseError as error:
            if not str(error).startswith(_WRONG_TYPE):
                raise StoreUnavailable(type(error).__name__) from error
            await self._commands.delete(key)
            raise UnreadableEntry from error
        except UnreadableEntry:
            await self._commands.delete(key)
            raise

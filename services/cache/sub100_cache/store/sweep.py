"""Removing what may not be read any more, with proof: a scan of the whole store, not of an index of ours."""

from collections.abc import AsyncIterator
from typing import Any, Final

from redis.exceptions import ResponseError

from .commands import WRITE_TIMEOUT_S, Commands, StoreUnavailable
from .entries import (
    Kept,
    UnreadableEntry,
    decode_entry,
    digest_of,
    entry_key,
    entry_prefix,
    is_vector,
    is_wording,
    target_of,
    tenant_pattern,
)
from .generations import Generations, Question, Standing
from .ledger import Ledger
from .seal import Seal

MAX_PASSES: Final = 5
_PAGE: Final = 16
"""Values read at once: each may have the size of the largest answer."""


class Sweep:
    """All methods raise StoreUnavailable."""

    def __init__(self, commands: Commands, generations: Generations, ledger: Ledger, seal: Seal) -> None:
        self._commands = commands
        self._generations = generations
        self._ledger = ledger
        self._seal = seal

    async def run(self, tenant: str) -> tuple[int, int]:
        """Delete the tenant's entries and aliases that no look-up may read, what cannot be read at all, and
        vectors and wordings without an entry. Returns how many were deleted, and how many the last scan still
        found: what it scans for never comes back, for no write under an overtaken generation succeeds."""
        num_erased = num_found = 0
        for _ in range(MAX_PASSES):
            num_found = await self._pass(tenant)
            num_erased += num_found
            if not num_found:
                break
        return num_erased, num_found

    async def _pass(self, tenant: str) -> int:
        """One scan."""
        standings: dict[Question, Standing] = {}
        num = 0
        async for keys in self._pages(tenant):
            dead = await self._dead(tenant, keys, standings)
            beginning = entry_prefix(tenant)
            digests = [key.removeprefix(beginning) for key in dead if key.startswith(beginning)]
            others = [key for key in dead if not key.startswith(beginning)]
            num += await self._ledger.forget(tenant, digests) if digests else 0
            num += await self._run(self._commands.client.delete(*others)) if others else 0
        return num

    async def _pages(self, tenant: str) -> AsyncIterator[list[str]]:
        try:
            async for keys in self._commands.scan(tenant_pattern(tenant), WRITE_TIMEOUT_S):
                for start in range(0, len(keys), _PAGE):
                    yield [key.decode() for key in keys[start : start + _PAGE]]
        except ResponseError as error:
            raise StoreUnavailable(type(error).__name__) from error

    async def _dead(self, tenant: str, keys: list[str], standings: dict[Question, Standing]) -> list[str]:
        """Those of ``keys`` that nobody may read."""
        entry_keys = [key for key in keys if key.startswith(entry_prefix(tenant))]
        others = [key for key in keys if not key.startswith(entry_prefix(tenant))]
        dead: list[str] = []
        if entry_keys:
            values = await self._run(self._commands.client.mget(entry_keys))
            for key, value in zip(entry_keys, values, strict=True):
                # None: it has another type, or has expired since.
                if value is None or not await self._is_readable(tenant, key, value, standings):
                    dead.append(key)
        return dead + [key for key in others if not await self._has_entry(tenant, key)]

    async def _has_entry(self, tenant: str, key: str) -> bool:
        """Nothing of another version has: nobody reads it."""
        if not (is_wording(key) or is_vector(key)):
            return False
        try:
            digest = await self._target(key) if is_wording(key) else digest_of(key)
            own = entry_key(tenant, digest)
        except ValueError:
            return False
        return bool(await self._run(self._commands.client.exists(own)))

    async def _target(self, key: str) -> bytes:
        (value,) = await self._commands.ask([("GET", key)], WRITE_TIMEOUT_S)
        return target_of(value)

    async def _is_readable(
        self, tenant: str, key: str, value: bytes, standings: dict[Question, Standing]
    ) -> bool:
        try:
            kept = decode_entry(value, tenant, digest_of(key), self._seal)
        except (UnreadableEntry, ValueError):
            return False
        return (await self._standing(kept, standings)).allows(kept)

    async def _standing(self, kept: Kept, standings: dict[Question, Standing]) -> Standing:
        """Asked for once a pass: what is raised meanwhile is found by the next sweep."""
        question = Question(kept.tenant, kept.scope, kept.revision)
        if question not in standings:
            standings[question] = await self._generations.standing(question, WRITE_TIMEOUT_S)
        return standings[question]

    async def _run(self, command: Any) -> Any:
        try:
            return await self._commands.run(command, WRITE_TIMEOUT_S)
        except ResponseError as error:
            raise StoreUnavailable(type(error).__name__) from error

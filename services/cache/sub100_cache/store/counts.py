"""Counts of each tenant over all replicas: kept in memory, added up in Redis in batches. What cannot be read
begins anew."""

import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from redis.exceptions import ResponseError

from .commands import WRITE_TIMEOUT_S, Commands, StoreUnavailable, is_spoiled
from .entries import counts_key

_log = logging.getLogger(__name__)

MAX_TENANTS: Final = 4096
"""Counted at once; of more, the counts of this interval are lost."""


class _Spoiled(StoreUnavailable):
    """What lies there are no counts."""


class Counts:
    """What a store that is away would not take is counted later. Counts live on for as long after a tenant's
    last look-up as an answer may live."""

    def __init__(self, commands: Commands, max_ttl_s: float) -> None:
        self._commands = commands
        self._ttl_ms = int(max_ttl_s * 1e3)
        self._pending: dict[str, Counter[str]] = {}

    def add(self, tenant: str, names: Iterable[str]) -> None:
        """One to each of ``names``."""
        counter = self._pending.get(tenant)
        if counter is None:
            if len(self._pending) >= MAX_TENANTS:
                return
            counter = self._pending[tenant] = Counter()
        counter.update(names)

    async def flush(self) -> None:
        """Write what was counted, tenant by tenant; never raises."""
        for tenant in list(self._pending):
            await self._flush(tenant)

    async def of(self, tenant: str) -> dict[str, int]:
        """Raises StoreUnavailable."""
        await self._flush(tenant)
        try:
            values = await self._run(self._commands.client.hgetall(counts_key(tenant)))
            return {name.decode(): int(value) for name, value in values.items()}
        except (_Spoiled, ValueError):
            await self._begin_anew(tenant)
            return {}

    async def erase(self, tenant: str) -> None:
        """Raises StoreUnavailable."""
        self._pending.pop(tenant, None)
        await self._run(self._commands.client.delete(counts_key(tenant)))

    async def _flush(self, tenant: str) -> None:
        counter = self._pending.pop(tenant, None)
        if not counter:
            return
        try:
            try:
                await self._write(tenant, counter)
            except _Spoiled:
                await self._begin_anew(tenant)
                await self._write(tenant, counter)
        except StoreUnavailable:
            # One that was only late counts twice: rare, and evidence is not a bill.
            if len(self._pending) < MAX_TENANTS:
                self._pending.setdefault(tenant, Counter()).update(counter)

    async def _write(self, tenant: str, counter: Counter[str]) -> None:
        pipe = self._commands.client.pipeline(transaction=True)
        for name, num in counter.items():
            pipe.hincrby(counts_key(tenant), name, num)
        pipe.pexpire(counts_key(tenant), self._ttl_ms)
        await self._run(pipe.execute())

    async def _begin_anew(self, tenant: str) -> None:
        await self._run(self._commands.client.delete(counts_key(tenant)))
        _log.warning("unreadable counts begun anew", extra={"tenant": tenant})

    async def _run(self, command: Any) -> Any:
        try:
            return await self._commands.run(command, WRITE_TIMEOUT_S)
        except ResponseError as error:
            kind = _Spoiled if is_spoiled(error) else StoreUnavailable
            raise kind(type(error).__name__) from error

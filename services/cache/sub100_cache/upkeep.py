"""What the cache does when nobody waits: writes counts, removes what may not be read, puts ledgers right."""

import asyncio
import contextlib
from typing import Final

from sub100_shared.clock import Clock

from .store.commands import StoreUnavailable
from .store.counts import Counts
from .store.ledger import Ledger
from .store.sweep import Sweep

MAX_TENANTS: Final = 4096


class Upkeep:
    """``clock`` in milliseconds. A tenant over ``MAX_TENANTS`` waits for the next round."""

    def __init__(
        self,
        counts: Counts,
        ledger: Ledger,
        sweep: Sweep,
        clock: Clock,
        *,
        counts_interval_s: float,
        ledger_interval_s: float,
    ) -> None:
        self._counts = counts
        self._ledger = ledger
        self._sweep = sweep
        self._clock = clock
        self._counts_interval_s = counts_interval_s
        self._ledger_interval_ms = ledger_interval_s * 1e3
        self._written: set[str] = set()
        self._to_sweep: set[str] = set()

    def wrote(self, tenant: str) -> None:
        """Its ledger is to be compared with what is there."""
        if len(self._written) < MAX_TENANTS:
            self._written.add(tenant)

    def invalidated(self, tenant: str) -> None:
        """It has entries that nobody may read."""
        if len(self._to_sweep) < MAX_TENANTS:
            self._to_sweep.add(tenant)

    async def run(self) -> None:
        """Until cancelled."""
        next_ledgers_ms = self._clock() + self._ledger_interval_ms
        while True:
            await asyncio.sleep(self._counts_interval_s)
            await self._counts.flush()
            while self._to_sweep:
                await self._swept(self._to_sweep.pop())
            if self._clock() >= next_ledgers_ms:
                await self._reconcile()
                next_ledgers_ms = self._clock() + self._ledger_interval_ms

    async def stop(self) -> None:
        await self._counts.flush()

    async def _swept(self, tenant: str) -> None:
        # A store that is away keeps what it has until its end: unreadable all the same.
        with contextlib.suppress(StoreUnavailable):
            await self._sweep.run(tenant)

    async def _reconcile(self) -> None:
        """A tenant that has entries left stays on the list."""
        for tenant in list(self._written):
            with contextlib.suppress(StoreUnavailable):
                await self._ledger.reconcile(tenant)
                num_entries, _ = await self._ledger.size(tenant)
                if not num_entries:
                    self._written.discard(tenant)

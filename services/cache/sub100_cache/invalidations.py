"""Invalidation: unreadable at once, removed soon, or at once where that is to be proved."""

import logging

from sub100_proto.cache import CacheInvalidate, CacheInvalidated

from .store.commands import StoreUnavailable
from .store.counts import Counts
from .store.generations import Generations, Question
from .store.ledger import Ledger
from .store.sweep import Sweep
from .upkeep import Upkeep

_log = logging.getLogger(__name__)


class Invalidations:
    def __init__(
        self, generations: Generations, sweep: Sweep, ledger: Ledger, counts: Counts, upkeep: Upkeep
    ) -> None:
        self._generations = generations
        self._sweep = sweep
        self._ledger = ledger
        self._counts = counts
        self._upkeep = upkeep

    async def apply(self, command: CacheInvalidate) -> CacheInvalidated:
        """What matches is unreadable when this returns without an error; with ``erase`` its bytes are gone
        and counted. Raises ValueError for a scope of the wrong length."""
        question = Question(command.tenant, command.scope, command.revision)
        try:
            await self._generations.invalidate(question, before_s=command.before_unix_s)
            num_erased, num_left = await self._erase(command) if command.erase else (0, 0)
        except StoreUnavailable as error:
            return CacheInvalidated(error=f"unavailable: {error}")
        if not command.erase:
            self._upkeep.invalidated(command.tenant)
        _log.info(
            "invalidated",
            extra={"tenant": command.tenant, "num_erased": num_erased, "num_left": num_left},
        )
        return CacheInvalidated(num_erased=num_erased, num_left=num_left)

    async def _erase(self, command: CacheInvalidate) -> tuple[int, int]:
        """Of a whole tenant its counts go too."""
        num_erased, num_left = await self._sweep.run(command.tenant)
        if not (command.scope or command.revision or command.before_unix_s):
            await self._ledger.reconcile(command.tenant)
            await self._counts.erase(command.tenant)
        return num_erased, num_left

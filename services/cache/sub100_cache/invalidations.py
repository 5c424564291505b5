"""Invalidation: unreadable at once, then removed."""

import logging

from sub100_proto.cache import CacheInvalidate, CacheInvalidated

from .store.commands import StoreUnavailable
from .store.generations import Generations, Question
from .store.sweep import Sweep

_log = logging.getLogger(__name__)


class Invalidations:
    def __init__(self, generations: Generations, sweep: Sweep) -> None:
        self._generations = generations
        self._sweep = sweep

    async def apply(self, command: CacheInvalidate) -> CacheInvalidated:
        """What matches is unreadable when this returns without an error; with ``erase`` its bytes are gone
        and counted. Raises ValueError for a scope of the wrong length."""
        question = Question(command.tenant, command.scope, command.revision)
        try:
            await self._generations.invalidate(question, before_s=command.before_unix_s)
            num_erased, num_left = await self._sweep.run(command.tenant) if command.erase else (0, 0)
        except StoreUnavailable as error:
            return CacheInvalidated(error=f"unavailable: {error}")
        _log.info(
            "invalidated",
            extra={"tenant": command.tenant, "num_erased": num_erased, "num_left": num_left},
        )
        return CacheInvalidated(num_erased=num_erased, num_left=num_left)

"""Invalidation: unreadable at once, removed soon, or at once where that is to be proved."""

import logging

from sub100_proto import codec, subjects
from sub100_proto.cache import CacheInvalidate, CacheInvalidated
from sub100_shared.durable_log import DurableLog, LogUnavailable

from .freshness import Freshness
from .store.commands import StoreUnavailable
from .store.counts import Counts
from .store.generations import Generations, Question
from .store.ledger import Ledger
from .store.log_place import Place
from .store.sweep import Sweep
from .upkeep import Upkeep

_log = logging.getLogger(__name__)


class Invalidations:
    """``log`` None: there is one region, and it tells nobody."""

    def __init__(
        self,
        generations: Generations,
        sweep: Sweep,
        ledger: Ledger,
        counts: Counts,
        upkeep: Upkeep,
        freshness: Freshness,
        log: DurableLog | None,
        region: str,
    ) -> None:
        self._generations = generations
        self._sweep = sweep
        self._ledger = ledger
        self._counts = counts
        self._upkeep = upkeep
        self._freshness = freshness
        self._shared = log
        self._subject = subjects.cache_log(region)

    async def command(self, command: CacheInvalidate) -> CacheInvalidated:
        """What matches is unreadable in this region when this returns without an error, and the others will
        know; with ``erase`` its bytes are gone and counted. Raises ValueError for a bad scope."""
        question = _question(command)
        question.target()  # what no region could apply must not enter the log
        position, problem = 0, ""
        if self._shared is not None:
            try:
                position = await self._shared.append(self._subject, codec.encode(command))
            except LogUnavailable as error:
                problem = f"done here, but the other regions were not told: {error}"
        try:
            # The log may be a new one that this replica has not read yet: then the place is none, and the
            # replay invalidates once more.
            place = Place(self._freshness.place.identity, position)
            await self._generations.invalidate(question, before_s=command.before_unix_s, place=place)
            is_known = await self._is_known(command.tenant)
            num_erased, num_left = await self._remove(command)
        except StoreUnavailable as error:
            return CacheInvalidated(error=f"unavailable: {error}")
        _log.info(
            "invalidated",
            extra={"tenant": command.tenant, "num_erased": num_erased, "num_left": num_left},
        )
        return CacheInvalidated(num_erased=num_erased, num_left=num_left, error=problem, is_known=is_known)

    async def replay(self, command: CacheInvalidate, place: Place, *, is_own: bool) -> None:
        """Apply what the log has at ``place``; ``is_own``: this region has removed what it had already.

        Raises StoreUnavailable, and ValueError for a bad scope."""
        await self._generations.invalidate(
            _question(command), before_s=command.before_unix_s, place=place, is_replay=True
        )
        if not is_own:
            await self._remove(command)

    async def _is_known(self, tenant: str) -> bool:
        """A name that nobody has, most likely a typing error, has no counts and no answers."""
        num_entries, _ = await self._ledger.size(tenant)
        return bool(num_entries or await self._counts.of(tenant))

    async def _remove(self, command: CacheInvalidate) -> tuple[int, int]:
        if command.erase:
            return await self._erase(command)
        self._upkeep.invalidated(command.tenant)
        return 0, 0

    async def _erase(self, command: CacheInvalidate) -> tuple[int, int]:
        """Of a whole tenant its counts go too."""
        num_erased, num_left = await self._sweep.run(command.tenant)
        if not (command.scope or command.revision or command.before_unix_s):
            await self._ledger.reconcile(command.tenant)
            await self._counts.erase(command.tenant)
        return num_erased, num_left


def _question(command: CacheInvalidate) -> Question:
    return Question(command.tenant, command.scope, command.revision)

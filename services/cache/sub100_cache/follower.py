"""Follows the log of invalidations: each is applied in order, and contact with its end is confirmed.

Every replica of a region follows by itself; applying twice does nothing. Where a part of the log is lost (it
was dropped before this region read it, the log was made anew, the store was flushed), nothing that the region
keeps is readable any more: it cannot know what it missed.
"""

import asyncio
import contextlib
import logging
from typing import Final

import msgspec

from sub100_proto import codec, subjects
from sub100_proto.cache import CacheInvalidate
from sub100_shared.clock import Clock
from sub100_shared.durable_log import PAGE, DurableLog, LogUnavailable, Record

from .freshness import Freshness
from .invalidations import Invalidations
from .store.commands import StoreUnavailable
from .store.generations import Generations
from .store.log_place import LogPlace, Place

_log = logging.getLogger(__name__)

LOG_NAME: Final = "sub100_cache"
MAX_POLL_S: Final = 1.0


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Of a log that is not there yet."""

    max_age_s: float
    max_bytes: int
    num_replicas: int


class Follower:
    def __init__(
        self,
        log: DurableLog,
        region: str,
        freshness: Freshness,
        generations: Generations,
        place: LogPlace,
        invalidations: Invalidations,
        clock: Clock,
        *,
        settings: LogSettings,
        max_staleness_s: float,
    ) -> None:
        self._log = log
        self._own_subject = subjects.cache_log(region)
        self._freshness = freshness
        self._generations = generations
        self._place = place
        self._invalidations = invalidations
        self._clock = clock
        self._settings = settings
        self._poll_s = min(MAX_POLL_S, max_staleness_s / 4)
        self._woken = asyncio.Event()
        self._told = ""

    def wake(self) -> None:
        """Something was appended."""
        self._woken.set()

    async def run(self) -> None:
        """Until cancelled."""
        is_made = False
        while True:
            self._woken.clear()
            try:
                if not is_made:
                    await self._log.ensure(
                        max_age_s=self._settings.max_age_s,
                        max_bytes=self._settings.max_bytes,
                        num_replicas=self._settings.num_replicas,
                    )
                    is_made = True
                await self.catch_up()
                self._tell("")
            except (LogUnavailable, StoreUnavailable) as error:
                is_made = False
                self._tell(f"{type(error).__name__}: {error}")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s):
                    await self._woken.wait()

    async def catch_up(self) -> None:
        """Ends when the end of the log was seen and everything before it is applied. Raises LogUnavailable,
        StoreUnavailable."""
        while True:
            began_ms = self._clock()
            ends = await self._log.ends()
            place = await self._place.read()
            known = self._freshness.place
            if known.identity != ends.identity or known.position > ends.last:
                self._freshness.lose()  # perhaps another replica has made the store begin anew already
            if place.identity != ends.identity or not ends.first - 1 <= place.position <= ends.last:
                place = Place(ends.identity, ends.first - 1)
                await self._lose("the log was cut or made anew, or the store was flushed")
                await self._place.write(place)
            if place.position == ends.last:
                self._freshness.confirm(place, began_ms)
                return
            records = await self._log.read(place.position + 1, ends.last)
            last = min(ends.last, place.position + PAGE)
            if len(records) < last - place.position:
                await self._lose("records were dropped before they were read")
            for record in records:
                await self._apply(ends.identity, record)
            await self._place.write(Place(ends.identity, last))

    async def _apply(self, identity: int, record: Record) -> None:
        try:
            command = codec.decode_cache_admin(record.data)
            if isinstance(command, CacheInvalidate):
                is_own = record.subject == self._own_subject  # erased before its operator was answered
                await self._invalidations.replay(command, Place(identity, record.position), is_own=is_own)
        except (msgspec.MsgspecError, ValueError):
            await self._lose("a record could not be read")

    async def _lose(self, reason: str) -> None:
        _log.warning("answers kept so far are not read any more", extra={"reason": reason})
        # First, so that no record that begins anew now is marked with a place that does not hold.
        self._freshness.lose()
        await self._generations.forget_all()

    def _tell(self, problem: str) -> None:
        if problem != self._told:
            self._told = problem
            if problem:
                _log.warning("no contact with the log of invalidations", extra={"error": problem})
            else:
                _log.info("in contact with the log of invalidations")

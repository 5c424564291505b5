"""Asks workers for dumps of their KV contents, one request per worker at a time."""

import asyncio
import logging
from typing import Final

import msgspec

from sub100_proto import codec, subjects
from sub100_proto.jobs import DumpKv
from sub100_shared.bus import Bus, NoResponders, ReplyTimeout
from sub100_shared.clock import Clock
from sub100_shared.errors import Refused

from .view import RegionView

_log = logging.getLogger(__name__)

RETRY_MS: Final = 500.0


class DumpRequester:
    """``ask`` is called at each tick; a worker that does not answer is asked again after RETRY_MS."""

    def __init__(self, bus: Bus, view: RegionView, clock: Clock, *, region: str, timeout_s: float) -> None:
        self._bus = bus
        self._view = view
        self._clock = clock
        self._region = region
        self._timeout_s = timeout_s
        self._running: dict[str, asyncio.Task[None]] = {}
        self._next_ms: dict[str, float] = {}

    def ask(self) -> None:
        """Start a request for each worker that wants one and has none running."""
        now_ms = self._clock()
        wanting = self._view.feed.wanting
        self._next_ms = {key: at for key, at in self._next_ms.items() if at > now_ms}
        for worker_id in wanting:
            if worker_id not in self._running and worker_id not in self._next_ms:
                self._running[worker_id] = asyncio.create_task(
                    self._fetch(worker_id), name=f"dump {worker_id}"
                )

    async def stop(self) -> None:
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _fetch(self, worker_id: str) -> None:
        worker = self._view.fleet.get(worker_id)
        try:
            if worker is None:
                return
            subject = subjects.control(self._region, worker.heartbeat.role, worker_id)
            reply = await self._bus.request(subject, codec.encode(DumpKv()), timeout_s=self._timeout_s)
            for _ in self._view.feed.load_dump(codec.decode_kv_dump(reply.data)):
                await asyncio.sleep(0)  # place requests go first
        except (NoResponders, ReplyTimeout, Refused, msgspec.MsgspecError) as error:
            _log.info("no KV dump", extra={"worker_id": worker_id, "error": str(error)})
        finally:
            self._next_ms[worker_id] = self._clock() + RETRY_MS
            self._running.pop(worker_id, None)

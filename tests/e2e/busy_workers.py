"""Workers that are there and take nothing: what a view that lags behind makes of full and of dead ones."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence

import msgspec
from tests.e2e.loop_thread import loop_thread
from tests.stack import Stack

from sub100_proto import codec, subjects
from sub100_proto.fleet import Heartbeat, Load
from sub100_proto.jobs import Busy
from sub100_shared.bus import Bus, Incoming

_BEAT_S = 0.25


class BusyWorkers:
    """Like a real one, whose pool they fit: each answers every job ``Busy(code)``; without a code nobody
    listens."""

    def __init__(self, bus: Bus, like: Heartbeat, worker_ids: Sequence[str], code: str) -> None:
        self._bus = bus
        self._code = code
        self._beats = [
            msgspec.structs.replace(
                like, worker_id=worker_id, load=Load(), num_jobs=0, num_queued_tokens=0, answers_pings=False
            )
            for worker_id in worker_ids
        ]
        self.num_refused = 0

    async def run(self) -> None:
        for beat in self._beats if self._code else ():
            await self._bus.serve(subjects.job("local", beat.role, beat.worker_id), self._refuse)
        while True:
            await self._say("ready")
            await asyncio.sleep(_BEAT_S)

    async def leave(self) -> None:
        await self._say("stopped")

    async def _say(self, state: str) -> None:
        for beat in self._beats:
            said = codec.encode(msgspec.structs.replace(beat, state=state))
            await self._bus.publish(subjects.heartbeat("local", beat.role, beat.worker_id), said)

    async def _refuse(self, msg: Incoming) -> bytes:
        self.num_refused += 1
        worker_id = msg.subject.rpartition(".")[2]
        return codec.encode(Busy(worker_id=worker_id, epoch=self._beats[0].epoch, code=self._code))


@contextlib.contextmanager
def busy_workers(stack: Stack, like: Heartbeat, *worker_ids: str, code: str) -> Iterator[BusyWorkers]:
    with loop_thread("busy workers") as loop:
        bus = loop.run(Bus.connect(stack.nats.url, name="busy"))
        workers = BusyWorkers(bus, like, worker_ids, code)
        running = loop.start(workers.run())
        try:
            yield workers
        finally:
            running.cancel()
            loop.run(workers.leave())
            loop.run(bus.close(1))

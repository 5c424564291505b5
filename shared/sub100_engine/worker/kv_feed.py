"""Changes of the engine's prefix cache -> numbered KvEvents, and the whole of it as a KvDump."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from sub100_proto import blocks, codec
from sub100_proto.fleet import KvDump, KvEvents
from sub100_shared.bus import BusUnavailable

from ..api import KvChange

_log = logging.getLogger(__name__)


class KvFeed:
    """Keeps the set of blocks that the engine holds and publishes each turn's changes as one message.

    A message that cannot be sent still takes its number: the schedulers see the gap and ask for a dump.
    """

    def __init__(self, worker_id: str, epoch: int, publish: Callable[[bytes], Awaitable[None]]) -> None:
        self._worker_id = worker_id
        self._epoch = epoch
        self._publish = publish
        self._held: dict[bytes, None] = {}
        self._changes: list[KvChange] = []
        self._flush_task: asyncio.Task[None] | None = None
        self.seq = 0

    def on_change(self, change: KvChange) -> None:
        """The engine's KvListener."""
        if change.cleared:
            self._held.clear()
        for block in change.removed:
            self._held.pop(block, None)
        for block in change.stored:
            self._held[block] = None
        self._changes.append(change)
        if self._flush_task is None:
            self._flush_task = asyncio.get_running_loop().create_task(self._flush())

    def adopt(self, hashes: bytes) -> None:
        """Begin a new life with blocks that the engine holds already. They have the number 1, which is
        never sent: to a scheduler it is a gap, and it asks for a dump."""
        self._held = dict.fromkeys(blocks.split(hashes))
        self.seq = 1 if hashes else 0

    def dump(self) -> KvDump:
        """As of the last numbered message; changes not sent yet are in it and will be repeated."""
        return KvDump(worker_id=self._worker_id, epoch=self._epoch, seq=self.seq, hashes=b"".join(self._held))

    async def _flush(self) -> None:
        try:
            while self._changes:
                changes, self._changes = self._changes, []
                for change in changes:
                    self.seq += 1
                    message = KvEvents(
                        worker_id=self._worker_id,
                        epoch=self._epoch,
                        seq=self.seq,
                        stored=b"".join(change.stored),
                        removed=b"".join(change.removed),
                        cleared=change.cleared,
                    )
                    try:
                        await self._publish(codec.encode(message))
                    except BusUnavailable:
                        _log.debug("kv events not sent: no connection")
        finally:
            self._flush_task = None

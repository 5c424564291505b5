"""vLLM's KV events -> changes in our chain hashes.

vLLM names a block by a hash of its own; its event carries the block's tokens, its parent and (for the
first block of a prompt) the cache salt, so that ours can be computed. vLLM may hold several blocks of one
content and tells of each: ours is stored with the first and removed with the last.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import msgspec
import zmq
import zmq.asyncio
from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KVEventBatch

from sub100_engine.api import KvChange, KvListener
from sub100_proto import blocks, tokens

_log = logging.getLogger(__name__)

SOCKET_NAME: Final = "kv-events.sock"
_MAX_QUEUED: Final = 100_000


class Translation:
    """The map from the engine's hashes to ours; pure."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._ours: dict[Any, bytes] = {}
        self._count: Counter[Any] = Counter()

    def translate(self, events: Iterable[BlockStored | BlockRemoved | AllBlocksCleared]) -> list[KvChange]:
        """One change, or several where a block was removed after it had been stored in the same batch."""
        changes: list[KvChange] = []
        stored: list[bytes] = []
        removed: list[bytes] = []
        cleared = False
        for event in events:
            if isinstance(event, BlockStored):
                stored += self._store(event)
                continue
            if stored:  # a change's removals come before its stores
                changes.append(KvChange(stored=stored, removed=removed, cleared=cleared))
                stored, removed, cleared = [], [], False
            if isinstance(event, BlockRemoved):
                removed += self._remove(event)
            else:
                self._ours.clear()
                self._count.clear()
                removed, cleared = [], True
        if stored or removed or cleared:
            changes.append(KvChange(stored=stored, removed=removed, cleared=cleared))
        return changes

    def forget(self) -> KvChange:
        """After lost events nothing is known: better to know too little than to promise what is gone."""
        self._ours.clear()
        self._count.clear()
        return KvChange(cleared=True)

    def _store(self, event: BlockStored) -> list[bytes]:
        size = event.block_size
        if size != self._block_size:
            return []
        if event.parent_block_hash is None:
            parent: bytes | None = blocks.root(_salt(event))
        else:
            parent = self._ours.get(event.parent_block_hash)
        if parent is None:
            return []  # a chain whose start we missed
        packed = memoryview(tokens.pack(event.token_ids))
        step = 4 * size
        told: list[bytes] = []
        for i, theirs in enumerate(event.block_hashes):
            parent = blocks.extend(parent, packed[i * step : (i + 1) * step])
            if not self._count[theirs]:
                told.append(parent)
            self._ours[theirs] = parent
            self._count[theirs] += 1
        return told

    def _remove(self, event: BlockRemoved) -> list[bytes]:
        told: list[bytes] = []
        for theirs in event.block_hashes:
            if theirs not in self._count:
                continue
            self._count[theirs] -= 1
            if self._count[theirs] <= 0:
                del self._count[theirs]
                told.append(self._ours.pop(theirs))
        return told


def _salt(event: BlockStored) -> str:
    """The first block's extra keys are its cache salt: we use neither adapters nor images."""
    first = event.extra_keys[0] if event.extra_keys else None
    return next((key for key in first or () if isinstance(key, str)), "")


class KvEvents:
    """Subscribes to the engine's events on the event loop. ``open`` before the engine starts."""

    def __init__(self, directory: Path, block_size: int, listener: KvListener) -> None:
        self.endpoint = f"ipc://{directory / SOCKET_NAME}"
        self._translation = Translation(block_size)
        self._listener = listener
        self._context = zmq.asyncio.Context()
        self._socket: zmq.asyncio.Socket | None = None
        self._task: asyncio.Task[None] | None = None
        self._next_seq = 0
        self.heard = asyncio.Event()

    def open(self) -> None:
        self._socket = self._context.socket(zmq.SUB)
        self._socket.set_hwm(_MAX_QUEUED)
        self._socket.setsockopt(zmq.RECONNECT_IVL, 50)
        self._socket.setsockopt(zmq.SUBSCRIBE, b"")
        self._socket.connect(self.endpoint)
        self._task = asyncio.get_running_loop().create_task(self._run(self._socket), name="kv-events")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=1)
            self._task = None
        if self._socket is not None:
            self._socket.close(linger=0)
            self._socket = None
        self._context.destroy(linger=0)

    async def _run(self, socket: zmq.asyncio.Socket) -> None:
        decode: Callable[[bytes], KVEventBatch] = msgspec.msgpack.Decoder(KVEventBatch).decode
        while True:
            _, seq_bytes, payload = await socket.recv_multipart()
            seq = int.from_bytes(seq_bytes, "big")
            try:
                if seq != self._next_seq and self.heard.is_set():
                    _log.warning("kv_events_lost", extra={"expected": self._next_seq, "got": seq})
                    self._listener(self._translation.forget())
                self._next_seq = seq + 1
                for change in self._translation.translate(decode(payload).events):
                    self._listener(change)
            except Exception:
                _log.exception("kv_events_failed")
                self._listener(self._translation.forget())
            self.heard.set()

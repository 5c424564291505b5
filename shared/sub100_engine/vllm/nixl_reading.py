"""The puller's part of a NIXL transfer: reads a peer's blocks into memory of its own, to be checked there.

Never straight into KV blocks: a read that is given up may still write for a while, and its blocks could be
another request's by then. The memory it writes to is used again only when NIXL has let go of it.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from .kv_memory import WORD_BYTES, Blocks, Frame, KvMemory, runs
from .nixl_agent import NixlAgent, NixlError, Reading, State, paced, spans_of
from .wire import PeerError, Readable

_WINDOW_BYTES: Final = 16 << 20
_MAX_STUCK: Final = 8
_MAX_IDLE: Final = 4


class NixlReading:
    """Thread-safe. ``layers`` for each pull -> ``close``.

    A read fills a window of so many bytes, or the blocks of a layer if those are more.
    """

    def __init__(self, agent: NixlAgent, memory: KvMemory, window_bytes: int = _WINDOW_BYTES) -> None:
        self._agent = agent
        self._memory = memory
        self._window_words = window_bytes // WORD_BYTES
        self._lock = threading.Lock()
        self._idle: list[_Staging] = []
        self._stuck: list[_Stuck] = []

    def layers(
        self,
        source: Readable,
        num_blocks: int,
        remaining_s: Callable[[], float],
    ) -> Iterator[Frame]:
        """Each layer's blocks, in order, while the next layers are on their way. They are valid until the
        next is asked for. ``remaining_s`` raises, or runs out, when the pull must end.

        Raises OSError (NixlError, PeerError, TimeoutError).
        """
        memory = self._memory
        if len(source.bases) != memory.num_layers or len(source.block_ids) != num_blocks:
            raise PeerError("the peer's memory has another shape")
        peer = source.agent
        self._agent.connect(peer, source.metadata)
        blocks = runs(source.block_ids)
        with self._staging(num_blocks, peer) as (staging, readings):
            groups = list(_groups(memory, num_blocks, staging.num_words))
            try:
                for position, group in enumerate(groups):
                    for ahead in range(len(readings), min(position + 2, len(groups))):
                        address = staging.addresses[ahead % 2]
                        readings.append(self._read(address, groups[ahead], source, blocks))
                    self._wait(readings[position], remaining_s)
                    yield from _rows(memory, num_blocks, staging.halves[position % 2], group)
            except (NixlError, TimeoutError):
                self._agent.disconnect(peer)  # dead, or it hangs; what is cancelled ends by itself
                raise

    def close(self) -> None:
        with self._lock:
            self._free_stuck(by_force=True)
            idle, self._idle = self._idle, []
        for staging in idle:
            staging.close()

    def _read(self, address: int, group: range, source: Readable, blocks: Blocks) -> Reading:
        local, remote = [], []
        at = address
        for layer in group:
            row_bytes = self._memory.row_bytes(layer)
            for first, count in blocks:
                local.append((at, count * row_bytes))
                remote.append((source.bases[layer] + first * row_bytes, count * row_bytes))
                at += count * row_bytes
        kind, device = self._memory.kind, self._memory.device
        return self._agent.read(
            source.agent, (kind, spans_of(local, device)), (source.kind, spans_of(remote, source.device))
        )

    def _wait(self, reading: Reading, remaining_s: Callable[[], float]) -> None:
        state: State = "running"
        while state == "running":
            if remaining_s() <= 0:
                raise TimeoutError("the peer's memory did not come in time")
            with paced():
                state = reading.poll()
        if state == "failed":
            raise NixlError("the peer's memory cannot be read")

    @contextmanager
    def _staging(self, num_blocks: int, peer: str) -> "Iterator[tuple[_Staging, list[Reading]]]":
        """Memory to read into. It is lent again when nothing that was read into it can still write."""
        staging = self._take(num_blocks)
        readings: list[Reading] = []
        try:
            yield staging, readings
        finally:
            stuck = _not_ended(readings)
            with self._lock:
                if stuck:
                    self._stuck.append(_Stuck(staging, stuck, peer))
                else:
                    self._keep(staging)

    def _take(self, num_blocks: int) -> "_Staging":
        with self._lock:
            self._free_stuck(by_force=False)
            if len(self._stuck) >= _MAX_STUCK:
                self._free_stuck(by_force=True)
            if len(self._stuck) >= _MAX_STUCK:
                raise NixlError("earlier reads do not end")
            idle = self._idle.pop() if self._idle else None
        whole_words = self._memory.block_bytes // WORD_BYTES * num_blocks
        layer_words = self._memory.max_layer_words * num_blocks
        num_words = max(layer_words, min(whole_words, self._window_words))
        if idle is not None and idle.num_words < num_words:
            idle.close()
            idle = None
        return idle or _Staging(self._agent, self._memory, num_words)

    def _free_stuck(self, *, by_force: bool) -> None:
        """Take back what nothing writes to any more; force cuts the connections."""
        for entry in list(self._stuck):
            if by_force:
                self._agent.disconnect(entry.peer)
            entry.readings = _not_ended(entry.readings)
            if not entry.readings:
                self._stuck.remove(entry)
                self._keep(entry.staging)

    def _keep(self, staging: "_Staging") -> None:
        """For the next pull, unless enough is kept."""
        if len(self._idle) < _MAX_IDLE:
            self._idle.append(staging)
        else:
            staging.close()


@dataclass(eq=False)
class _Stuck:
    """Memory that reads may still write to, though their pull is over."""

    staging: "_Staging"
    readings: list[Reading]
    peer: str


class _Staging:
    """Two halves: one is read into while the other is checked and copied."""

    def __init__(self, agent: NixlAgent, memory: KvMemory, num_words: int) -> None:
        self._agent = agent
        self.num_words = num_words
        whole, address = memory.staging(2 * num_words)
        self.halves: tuple[Frame, Frame] = whole[:num_words], whole[num_words:]
        self.addresses = address, address + num_words * WORD_BYTES
        spans = spans_of([(address, 2 * num_words * WORD_BYTES)], memory.device)
        self._registered: Any = agent.register(spans, memory.kind)

    def close(self) -> None:
        self._agent.deregister(self._registered)


def _groups(memory: KvMemory, num_blocks: int, num_words: int) -> Iterator[range]:
    """Neighbouring layers that fit into so many words; at least one each."""
    start = size = 0
    for layer in range(memory.num_layers):
        more = memory.num_words(layer, num_blocks)
        if layer > start and size + more > num_words:
            yield range(start, layer)
            start, size = layer, 0
        size += more
    yield range(start, memory.num_layers)


def _rows(memory: KvMemory, num_blocks: int, half: Frame, group: range) -> Iterator[Frame]:
    at = 0
    for layer in group:
        num_words = memory.num_words(layer, num_blocks)
        yield half[at : at + num_words]
        at += num_words


def _not_ended(readings: list[Reading]) -> list[Reading]:
    return [reading for reading in readings if not reading.end()]

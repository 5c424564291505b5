"""Keeps the prefix index true to the workers' KV events, and knows when it is not.

Events of a worker are numbered. A new life, and one with a gap, is in ``wanting`` until a dump came in;
its content stays what it was and new events wait (bounded). What the dump does not cover yet is then
applied from the waiting ones. A heartbeat names the last number sent; since it may overtake events, only
one that is still ahead at the *next* heartbeat is a loss.
"""

import logging
from collections import deque
from collections.abc import Iterator
from typing import Final

from sub100_proto.blocks import HASH_BYTES
from sub100_proto.fleet import Heartbeat, KvDump, KvEvents

from .prefix_index import PrefixIndex

_log = logging.getLogger(__name__)

MAX_WAITING: Final = 256
STEP_BLOCKS: Final = 2_048
"""Blocks of a dump that are taken in at once: about a millisecond."""


class _Follow:
    """How far one life of one worker has been followed."""

    __slots__ = ("epoch", "is_synced", "promised_seq", "seq", "waiting")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.seq = 0
        self.is_synced = False
        self.promised_seq = 0
        self.waiting: deque[KvEvents] = deque(maxlen=MAX_WAITING)


class KvFeed:
    """Follows the workers that ``join`` named; events of others, or of other lives, are ignored."""

    def __init__(self, index: PrefixIndex) -> None:
        self._index = index
        self._follows: dict[str, _Follow] = {}
        self.num_gaps = 0

    def join(self, heartbeat: Heartbeat) -> None:
        """A new life. Its cache need not be empty, whatever it has sent so far: a dump must tell."""
        self._index.join(heartbeat.worker_id, heartbeat.num_blocks)
        self._follows[heartbeat.worker_id] = _Follow(heartbeat.epoch)

    def leave(self, worker_id: str) -> None:
        self._index.leave(worker_id)
        self._follows.pop(worker_id, None)

    @property
    def wanting(self) -> list[str]:
        """The workers whose content is not known for certain."""
        return [worker_id for worker_id, follow in self._follows.items() if not follow.is_synced]

    def on_heartbeat(self, heartbeat: Heartbeat) -> None:
        follow = self._follows.get(heartbeat.worker_id)
        if follow is None or follow.epoch != heartbeat.epoch:
            return
        self._index.resize(heartbeat.worker_id, heartbeat.num_blocks)
        if follow.is_synced and follow.promised_seq > follow.seq:
            self._lose(heartbeat.worker_id, follow)
        follow.promised_seq = heartbeat.kv_seq

    def on_events(self, events: KvEvents) -> None:
        follow = self._follows.get(events.worker_id)
        if follow is None or follow.epoch != events.epoch:
            return
        if follow.is_synced and events.seq > follow.seq + 1:
            self._lose(events.worker_id, follow)
        if not follow.is_synced:
            follow.waiting.append(events)
        elif events.seq == follow.seq + 1:
            self._apply(follow, events)

    def on_dump(self, dump: KvDump) -> None:
        """Replace the content; an older dump than what is known, or of another life, changes nothing."""
        for _ in self.load_dump(dump):
            pass

    def load_dump(self, dump: KvDump) -> Iterator[None]:
        """``on_dump`` in steps, for a large one: events wait until the last step, and a worker that left
        or came back between two steps ends it."""
        follow = self._follows.get(dump.worker_id)
        if follow is None or follow.epoch != dump.epoch or dump.seq < follow.seq:
            return
        if len(dump.hashes) % HASH_BYTES:
            _log.error("unreadable KV dump", extra={"worker_id": dump.worker_id})
            return
        follow.is_synced = False
        self._index.replace(dump.worker_id, b"")
        for start in range(0, len(dump.hashes), STEP_BLOCKS * HASH_BYTES):
            self._index.store(dump.worker_id, dump.hashes[start : start + STEP_BLOCKS * HASH_BYTES])
            yield
            if self._follows.get(dump.worker_id) is not follow:
                return
        follow.seq = dump.seq
        follow.is_synced = True
        waiting, follow.waiting = follow.waiting, deque(maxlen=MAX_WAITING)
        for events in waiting:
            self.on_events(events)

    def _apply(self, follow: _Follow, events: KvEvents) -> None:
        follow.seq = events.seq
        try:
            if events.cleared:
                self._index.replace(events.worker_id, b"")
            self._index.remove(events.worker_id, events.removed)
            self._index.store(events.worker_id, events.stored)
        except ValueError as error:
            _log.error("unreadable KV events", extra={"worker_id": events.worker_id, "error": str(error)})
            self._lose(events.worker_id, follow)

    def _lose(self, worker_id: str, follow: _Follow) -> None:
        follow.is_synced = False
        self.num_gaps += 1
        _log.info("KV events missing", extra={"worker_id": worker_id, "seq": follow.seq})

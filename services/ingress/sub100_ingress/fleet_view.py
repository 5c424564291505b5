"""What the region's workers say in their heartbeats: whether they have room, and which weights they run.

Hints, never a decision of placement.
"""

from typing import Final

import msgspec

from sub100_proto import codec
from sub100_proto.fleet import Heartbeat
from sub100_shared.bus import Incoming
from sub100_shared.clock import Clock

_STALE_INTERVALS: Final = 4


def heartbeat_of(msg: Incoming) -> Heartbeat | None:
    """A message on ``subjects.heartbeat_all``, decoded once for all; None if it cannot be read."""
    try:
        return codec.decode_heartbeat(msg.data)
    except msgspec.MsgspecError:
        return None


class FleetView:
    """Fed by ``on_heartbeat``; a worker that stops beating is forgotten."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._beats: dict[str, tuple[Heartbeat, float]] = {}
        self._weights: dict[str, frozenset[str]] = {}

    def on_heartbeat(self, beat: Heartbeat) -> None:
        self._beats[beat.worker_id] = (beat, self._clock())

    def has_headroom(self) -> bool:
        """Whether some worker of each role that there is could start another request at once. True while
        nothing is known."""
        free: dict[str, bool] = {}
        for beat in self._fresh():
            free[beat.role] = free.get(beat.role, False) or _is_free(beat, beat.max_num_seqs)
        return all(free.values())

    def weights(self, model: str) -> frozenset[str]:
        """The revisions of the weights that answer as ``model``: more than one while pools with others serve
        side by side. While nobody is ready it is what was there last; empty: nobody was ready yet."""
        ready = frozenset(beat.revision for beat in self._fresh() if beat.model == model)
        if ready:
            self._weights[model] = ready
        return self._weights.get(model, frozenset())

    def is_quiet(self) -> bool:
        """Whether nobody waits anywhere and all workers together are at most half full."""
        beats = self._fresh()
        return all(_is_free(beat, max(1, beat.max_num_seqs // 2)) for beat in beats)

    def _fresh(self) -> list[Heartbeat]:
        now = self._clock()
        stale = [
            worker_id
            for worker_id, (beat, at) in self._beats.items()
            if now - at > _STALE_INTERVALS * beat.interval_s * 1e3
        ]
        for worker_id in stale:
            del self._beats[worker_id]
        return [beat for beat, _ in self._beats.values() if beat.state == "ready"]


def _is_free(beat: Heartbeat, max_running: int) -> bool:
    return beat.load.num_waiting == 0 and beat.load.num_running < max_running

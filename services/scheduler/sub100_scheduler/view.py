"""The scheduler's view of its region: fleet, placements in flight, prefix index and predictor, kept together.

One call per kind of message; each keeps the four parts consistent with one another. No I/O.
"""

from typing import Final

from sub100_proto.fleet import Heartbeat
from sub100_proto.placement import Placed, Placement, PlaceRequest, Rejected, Settled
from sub100_shared.attendance import Attendance

from .fleet import Change, Fleet
from .inflight import InFlight
from .kv_feed import KvFeed
from .policy import Chance, Rules, num_queued_tokens, num_uncached_tokens, place
from .predictor import Predictor
from .prefix_index import PrefixIndex
from .workload import Workload

SWEEP_ENTRIES: Final = 2_000


class RegionView:
    """All state that a placement depends on. Time is the caller's, in monotonic milliseconds; ``tick`` is
    to be called every ``tick_ms``, or sooner."""

    def __init__(
        self,
        rules: Rules,
        *,
        tick_ms: float,
        inflight_ttl_ms: float,
        max_placements: int,
        max_index_blocks: int,
        chance: Chance,
    ) -> None:
        self._rules = rules
        self._chance = chance
        self._attendance = Attendance(tick_ms)
        self.fleet = Fleet()
        self.inflight = InFlight(ttl_ms=inflight_ttl_ms, limit=max_placements)
        self.index = PrefixIndex(max_index_blocks)
        self.feed = KvFeed(self.index)
        self.predictor = Predictor()
        self.workload = Workload()

    def place(self, request: PlaceRequest, placement_id: str, now_ms: float) -> Placement | Rejected:
        """Decide, and count the decision as load at once."""
        answer = place(
            self.fleet.workers,
            self.index.match(request.block_hashes),
            request,
            self.predictor,
            self._rules,
            now_ms=now_ms,
            placement_id=placement_id,
            chance=self._chance,
        )
        if isinstance(answer, Placement):
            worker = answer.decode if answer.prefill is None else answer.prefill
            self._count(
                placement_id,
                worker.worker_id,
                answer.decode.worker_id,
                num_uncached_tokens(request, answer),
                num_queued_tokens(request, answer),
                now_ms,
            )
        return answer

    def on_heartbeat(self, heartbeat: Heartbeat, now_ms: float) -> bool:
        """True if the fleet's membership, a member's state or its KV fault changed."""
        view = self.fleet.get(heartbeat.worker_id)
        before = None if view is None else view.heartbeat
        change = self.fleet.observe(heartbeat, now_ms)
        if change is Change.JOINED:
            self.feed.join(heartbeat)
        elif change is Change.LEFT:
            self._forget(heartbeat.worker_id)
        elif change is Change.NONE:
            self.feed.on_heartbeat(heartbeat)
            return before is not None and _standing(before) != _standing(heartbeat)
        return change is not Change.IGNORED

    def on_placed(self, placed: Placed, now_ms: float) -> None:
        """A replica's placement."""
        self._count(
            placed.placement_id,
            placed.prefill or placed.decode,
            placed.decode,
            placed.num_uncached_tokens,
            placed.num_queued_tokens,
            now_ms,
        )

    def on_settled(self, settled: Settled) -> None:
        self.inflight.settle(settled.placement_id, settled.phase)
        if settled.ok and self.fleet.get(settled.worker_id) is not None:
            self.predictor.observe(
                settled.worker_id, num_tokens=settled.num_computed_tokens, prefill_ms=settled.prefill_ms
            )

    def tick(self, now_ms: float) -> list[str]:
        """Let time pass: silent workers leave (their ids are returned), old placements end.

        After a stall of this process nobody is blamed: heartbeats are still waiting to be read.
        """
        if self._attendance.was_away(now_ms):
            self.fleet.excuse(now_ms)
        gone = self.fleet.lapse(now_ms)
        for worker_id in gone:
            self._forget(worker_id)
        self.inflight.expire(now_ms)
        self.index.sweep(SWEEP_ENTRIES)
        return gone

    def summary(self) -> str:
        """For people: how many workers of each role are ready."""
        beats = [view.heartbeat for view in self.fleet.workers if view.heartbeat.state == "ready"]
        num_prefill = sum(beat.role == "prefill" for beat in beats)
        return f"prefill {num_prefill}, decode {len(beats) - num_prefill}"

    def _count(
        self,
        placement_id: str,
        prefill_id: str,
        decode_id: str,
        num_tokens: int,
        num_queued: int,
        now_ms: float,
    ) -> None:
        """A placement is load from now on: in flight, and as work asked of its pool."""
        prefill = self.fleet.get(prefill_id)
        self.inflight.add(
            placement_id,
            prefill=prefill,
            decode=self.fleet.get(decode_id),
            num_tokens=num_tokens,
            num_queued_tokens=num_queued,
            now_ms=now_ms,
        )
        if prefill is not None:
            beat = prefill.heartbeat
            work_ms = self.predictor.ttft_ms(
                prefill_id, num_ahead=0, num_tokens=num_tokens, max_chunk_tokens=beat.max_chunk_tokens
            )
            self.workload.add((beat.role, beat.pool), num_tokens=num_tokens, work_ms=work_ms)

    def _forget(self, worker_id: str) -> None:
        self.feed.leave(worker_id)
        self.predictor.forget(worker_id)


def _standing(beat: Heartbeat) -> tuple[str, str]:
    return beat.state, beat.kv_fault

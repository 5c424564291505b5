"""The fleet as its heartbeats tell it: who is there, in which life, under which load.

A worker enters with its first heartbeat, leaves when it says ``stopped`` or has been silent for three of
its intervals, and comes back as another worker when its epoch rises. Who does not fit its pool
(``registration``) is refused and told so. Time is the caller's, in monotonic milliseconds.
"""

import logging
from collections.abc import Sequence
from enum import Enum
from typing import Final

import msgspec

from sub100_proto.fleet import Heartbeat, Load
from sub100_proto.subjects import Role

from . import registration

_log = logging.getLogger(__name__)

LAPSE_INTERVALS: Final = 3
IN_PLACE_MS: Final = 1_500.0
"""A member for that long is in place. A scheduler that has just started hears its fleet in any order."""

MAX_REFUSED: Final = 256
"""Refused workers that are known at once; of more nothing is said."""


class Verdict(msgspec.Struct, frozen=True):
    """What a worker is to be told of its registration; an empty refusal lets it in."""

    worker_id: str
    role: Role
    epoch: int
    refusal: str


class WorkerView:
    """One life of one worker: its last heartbeat and what this region's schedulers have put on it.

    The ``inflight_*`` counts are kept by ``inflight.InFlight`` alone.
    """

    __slots__ = (
        "heartbeat",
        "inflight_decodes",
        "inflight_prefill_tokens",
        "inflight_prefills",
        "inflight_queued_tokens",
        "joined_ms",
        "last_seen_ms",
    )

    def __init__(self, heartbeat: Heartbeat, now_ms: float) -> None:
        self.heartbeat = heartbeat
        self.joined_ms = now_ms
        self.last_seen_ms = now_ms
        self.inflight_prefills = 0
        self.inflight_prefill_tokens = 0
        self.inflight_queued_tokens = 0
        self.inflight_decodes = 0

    @property
    def worker_id(self) -> str:
        return self.heartbeat.worker_id

    @property
    def load(self) -> Load:
        return self.heartbeat.load

    @property
    def num_tokens_ahead(self) -> int:
        """To be computed before a new request's. A placement is in both counts once a heartbeat has seen it,
        so the larger one is right and their sum is not."""
        return max(self.heartbeat.load.num_waiting_tokens, self.inflight_prefill_tokens)

    @property
    def num_requests(self) -> int:
        """Requests on the worker, running or waiting. What a decode worker computes alone holds both of its
        shares and is one request."""
        load = self.heartbeat.load
        return max(load.num_running + load.num_waiting, self.inflight_prefills, self.inflight_decodes)

    def is_full(self, num_tokens: int) -> bool:
        """Whether the worker would refuse a job that queues ``num_tokens``: by its own book, and by what has
        been put on it since it told of that."""
        beat = self.heartbeat
        if beat.limits is None:
            return False
        num_jobs = max(beat.num_jobs, self.inflight_prefills, self.inflight_decodes)
        return beat.limits.is_full(num_jobs, self._num_queued_tokens, num_tokens)

    def num_excess_tokens(self, num_tokens: int) -> int:
        """How many tokens must leave the queue before there is room for so many; 0 or less if none."""
        limits = self.heartbeat.limits
        return 0 if limits is None else self._num_queued_tokens + num_tokens - limits.max_queued_tokens

    @property
    def _num_queued_tokens(self) -> int:
        """In the worker's book: unlike ``num_tokens_ahead``, cached ones included."""
        return max(self.heartbeat.num_queued_tokens, self.inflight_queued_tokens)

    def has_lapsed(self, now_ms: float) -> bool:
        return now_ms - self.last_seen_ms > LAPSE_INTERVALS * self.heartbeat.interval_s * 1e3


class Change(Enum):
    """What a heartbeat meant for the fleet."""

    NONE = "none"
    JOINED = "joined"
    LEFT = "left"
    IGNORED = "ignored"


class Fleet:
    """All workers of a region by id. Ids are unique over roles and pools."""

    def __init__(self) -> None:
        self._workers: dict[str, WorkerView] = {}
        self._refused: dict[str, WorkerView] = {}
        self._verdicts: dict[str, Verdict] = {}
        self._order: tuple[WorkerView, ...] = ()

    @property
    def workers(self) -> Sequence[WorkerView]:
        """Every member, in order of arrival; which of them may be used is the policy's to say."""
        return self._order

    def get(self, worker_id: str) -> WorkerView | None:
        return self._workers.get(worker_id)

    def observe(self, heartbeat: Heartbeat, now_ms: float) -> Change:
        """Take a heartbeat in. JOINED also stands for a new life of a known worker."""
        known = self._workers.get(heartbeat.worker_id)
        if known is not None and heartbeat.epoch < known.heartbeat.epoch:
            return Change.IGNORED
        if heartbeat.state == "stopped":
            self._refused.pop(heartbeat.worker_id, None)
            return self._remove(heartbeat.worker_id)
        if registration.is_candidate(heartbeat) and not self._may_join(heartbeat, now_ms):
            return self._remove(heartbeat.worker_id)
        self._refused.pop(heartbeat.worker_id, None)
        if known is not None and known.heartbeat.epoch == heartbeat.epoch:
            known.heartbeat = heartbeat
            known.last_seen_ms = now_ms
            return Change.NONE
        self._workers[heartbeat.worker_id] = WorkerView(heartbeat, now_ms)
        self._order = tuple(self._workers.values())
        return Change.JOINED

    def lapse(self, now_ms: float) -> list[str]:
        """Remove the workers that have been silent for too long; returns their ids."""
        for worker_id in [key for key, view in self._refused.items() if view.has_lapsed(now_ms)]:
            del self._refused[worker_id]
        gone = [view.worker_id for view in self._order if view.has_lapsed(now_ms)]
        for worker_id in gone:
            self._remove(worker_id)
        return gone

    def excuse(self, now_ms: float) -> None:
        """Nobody could be heard until now (our own stall, a lost connection): silence starts anew."""
        for view in (*self._workers.values(), *self._refused.values()):
            view.last_seen_ms = now_ms

    def _remove(self, worker_id: str) -> Change:
        if self._workers.pop(worker_id, None) is None:
            return Change.IGNORED
        self._order = tuple(self._workers.values())
        return Change.LEFT

    def take_verdicts(self) -> list[Verdict]:
        """What is to be told to workers since the last call; repeated with their heartbeats until they say
        that they know."""
        verdicts, self._verdicts = self._verdicts, {}
        return list(verdicts.values())

    def _may_join(self, beat: Heartbeat, now_ms: float) -> bool:
        """Judge a worker that is ready, or would be. One that was refused and is let in again has a word
        to wait for: it joins when it says ``ready``."""
        in_place: list[Heartbeat] = []
        waiting = [view.heartbeat for view in self._refused.values()]
        for view in self._order:
            is_in_place = now_ms - view.joined_ms >= IN_PLACE_MS
            (in_place if is_in_place else waiting).append(view.heartbeat)
        refusal = registration.refusal(beat, in_place, waiting)
        if refusal != beat.refusal:
            self._tell(beat, refusal)
        if refusal or beat.refusal:
            self._remember(beat, refusal, now_ms)
            return False
        return True

    def _tell(self, beat: Heartbeat, refusal: str) -> None:
        if len(self._verdicts) < MAX_REFUSED:
            self._verdicts[beat.worker_id] = Verdict(beat.worker_id, beat.role, beat.epoch, refusal)

    def _remember(self, beat: Heartbeat, refusal: str, now_ms: float) -> None:
        """Log a life's refusal once."""
        before = self._refused.get(beat.worker_id)
        if before is None and len(self._refused) >= MAX_REFUSED:
            return
        if refusal and (before is None or before.heartbeat.epoch != beat.epoch):
            _log.error(
                "worker refused",
                extra={
                    "worker_id": beat.worker_id,
                    "role": beat.role,
                    "epoch": beat.epoch,
                    "pool": beat.pool,
                    "reason": refusal,
                },
            )
        self._refused[beat.worker_id] = WorkerView(beat, now_ms)

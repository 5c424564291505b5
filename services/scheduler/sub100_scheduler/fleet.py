"""The fleet as its heartbeats tell it: who is there, in which life, under which load.

A worker enters with its first heartbeat, leaves when it says ``stopped`` or has been silent for three of
its intervals, and comes back as another worker when its epoch rises. Within a pool all workers must
agree on model, layout and block size, or KV could not be handed over: the first ready one sets the
measure, others are refused until it is gone. Time is the caller's, in monotonic milliseconds.
"""

import logging
from collections.abc import Sequence
from enum import Enum
from typing import Final

from sub100_proto.fleet import Heartbeat, Load

_log = logging.getLogger(__name__)

LAPSE_INTERVALS: Final = 3

Fingerprint = tuple[str, str, int]
"""Model, layout, block size."""


class WorkerView:
    """One life of one worker: its last heartbeat and what this region's schedulers have put on it.

    The ``inflight_*`` counts are kept by ``inflight.InFlight`` alone.
    """

    __slots__ = (
        "heartbeat",
        "inflight_decodes",
        "inflight_prefill_tokens",
        "inflight_prefills",
        "last_seen_ms",
    )

    def __init__(self, heartbeat: Heartbeat, now_ms: float) -> None:
        self.heartbeat = heartbeat
        self.last_seen_ms = now_ms
        self.inflight_prefills = 0
        self.inflight_prefill_tokens = 0
        self.inflight_decodes = 0

    @property
    def worker_id(self) -> str:
        return self.heartbeat.worker_id

    @property
    def load(self) -> Load:
        return self.heartbeat.load

    @property
    def num_queued_tokens(self) -> int:
        """Prompt tokens ahead of a new request. A placement is in both counts once a heartbeat has seen
        it, so the larger one is right and their sum is not."""
        return max(self.heartbeat.load.num_waiting_tokens, self.inflight_prefill_tokens)

    @property
    def num_requests(self) -> int:
        """Requests on the worker, running or waiting."""
        load = self.heartbeat.load
        return max(load.num_running + load.num_waiting, self.inflight_prefills + self.inflight_decodes)

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
        if not self._is_compatible(heartbeat):
            self._refuse(heartbeat, now_ms)
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

    def _is_compatible(self, heartbeat: Heartbeat) -> bool:
        """A worker that is still loading may not know its layout yet, so only ready ones are judged."""
        if heartbeat.state != "ready":
            return True
        measure = _fingerprint(heartbeat)
        for view in self._order:
            other = view.heartbeat
            if (
                other.pool == heartbeat.pool
                and other.state == "ready"
                and other.worker_id != heartbeat.worker_id
            ):
                return _fingerprint(other) == measure
        return True

    def _refuse(self, heartbeat: Heartbeat, now_ms: float) -> None:
        before = self._refused.get(heartbeat.worker_id)
        if before is None or before.heartbeat.epoch != heartbeat.epoch:
            _log.error(
                "worker refused: it cannot hand KV over within its pool",
                extra={
                    "worker_id": heartbeat.worker_id,
                    "epoch": heartbeat.epoch,
                    "pool": heartbeat.pool,
                    "model": heartbeat.model,
                    "layout": heartbeat.layout,
                    "block_size": heartbeat.block_size,
                },
            )
        self._refused[heartbeat.worker_id] = WorkerView(heartbeat, now_ms)


def _fingerprint(heartbeat: Heartbeat) -> Fingerprint:
    return heartbeat.model, heartbeat.layout, heartbeat.block_size

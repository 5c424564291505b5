"""Which workers are there, as far as ingress can tell: by heartbeats, and by asking whoever falls silent.

A worker whose streams stand still is sent a Ping. NATS says at once when nobody listens (a killed worker);
one that hangs does not answer in time. Heartbeats alone would take four times as long to tell.
Nothing is held against a worker that could not have been heard: while the bus is away, and for a while after.
"""

import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from sub100_proto import subjects
from sub100_proto.fleet import Heartbeat
from sub100_proto.placement import WorkerRef
from sub100_proto.subjects import Role
from sub100_shared.bus import Incoming
from sub100_shared.clock import Clock

_log = logging.getLogger(__name__)

UNHEARD_INTERVAL_MS: Final = 500.0
"""Between the heartbeats of a worker that has not told it yet."""

LAPSE_INTERVALS: Final = 4
"""Heartbeats that a worker may miss before its streams are re-placed: one more than before it is no longer
placed, so that a worker which is only late keeps what it has."""

PING_AFTER_MS: Final = 150.0
PONG_TIMEOUT_MS: Final = 500.0
PATIENT_PONG_TIMEOUT_MS: Final = 1_000.0
"""While no client has seen a token yet: there is no pause to be seen, and less to go on with elsewhere."""
NUM_UNHEARD: Final = 2
"""Pings in a row that reached nobody: one may fall into a connection's moment of absence."""

GRACE_MS: Final = 2_000.0
"""After the bus was away, or this process stood still: others need time to come back, too."""


MAX_AWAY_MS: Final = 2_000.0
"""A bus that is away for longer carries nobody's tokens: streams look for another place, and wait for one."""


class _Beat(msgspec.Struct):
    """``step`` is the engine's last, seen first at ``step_at_ms`` or idle since then. ``is_impaired``: it is
    up and serves nobody, since its engine hangs or its pool refuses it."""

    epoch: int
    at_ms: float
    step: int
    step_at_ms: float
    interval_ms: float
    answers_pings: bool
    is_impaired: bool = False


class _Question(msgspec.Struct):
    role: Role
    at_ms: float
    num_asked: int = 1
    num_unheard: int = 0


class Liveness:
    """Pure but for the clock. What it is told of: heartbeats, pongs, the bus; what it tells: who is dead, and
    whom to ask."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_connected = True
        self._away_since_ms = 0.0
        self._grace_until_ms = 0.0
        self._beats: dict[str, _Beat] = {}
        self._ponged: dict[str, float] = {}
        self._questions: dict[str, _Question] = {}
        self._gone: dict[str, int] = {}
        self._to_ask: list[tuple[str, Role]] = []

    def on_heartbeat(self, beat: Heartbeat) -> None:
        now, load = self._clock(), beat.load
        before = self._beats.get(beat.worker_id)
        has_work = load.num_running + load.num_waiting > 0
        stands_still = before is not None and has_work and load.step == before.step
        step_at_ms = before.step_at_ms if before is not None and stands_still else now
        self._gone.pop(beat.worker_id, None)
        self._beats[beat.worker_id] = _Beat(
            beat.epoch,
            now,
            load.step,
            step_at_ms,
            beat.interval_s * 1e3,
            beat.answers_pings,
            is_impaired=beat.state == "starting",
        )

    def on_pong(self, msg: Incoming) -> None:
        """A message on ``subjects.stream_pong``."""
        worker_id = subjects.ponging(msg.subject)
        if msg.is_no_responders:
            if (question := self._questions.get(worker_id)) is not None:
                question.num_unheard += 1
        elif self._questions.pop(worker_id, None) is not None:
            self._ponged[worker_id] = self._clock()

    def on_bus_state(self, connected: bool) -> None:
        self._is_connected = connected
        self._away_since_ms = self._clock()
        self.excuse()

    def excuse(self) -> None:
        """Nobody could be heard until now: all silence starts anew."""
        now = self._clock()
        self._grace_until_ms = now + GRACE_MS
        self._questions.clear()
        self._gone.clear()
        for beat in self._beats.values():
            beat.at_ms = beat.step_at_ms = now

    def is_dead(self, worker: WorkerRef) -> bool:
        """It stopped beating, did not answer, or came back as another life. A worker that was never heard
        (this ingress is new) is judged from its first silence on."""
        beat = self._beats.get(worker.worker_id)
        if not self._is_connected:
            return self._clock() - self._away_since_ms > MAX_AWAY_MS
        if beat is None:
            return False
        return (
            beat.epoch > worker.epoch
            or self._clock() - beat.at_ms > LAPSE_INTERVALS * beat.interval_ms
            or self._gone.get(worker.worker_id) == worker.epoch
        )

    def is_impaired(self, worker: WorkerRef) -> bool:
        """It says so itself: what waits for KV of its waits in vain."""
        beat = self._beats.get(worker.worker_id)
        return beat is not None and beat.is_impaired

    def has_hung(self, worker: WorkerRef, limit_ms: float) -> bool:
        """Its engine has work and made no step for so long, by its own heartbeats: what answers is an empty
        shell."""
        beat = self._beats.get(worker.worker_id)
        return self._is_connected and beat is not None and self._clock() - beat.step_at_ms > limit_ms

    def suspect(self, worker: WorkerRef, role: Role, *, has_token: bool) -> None:
        """Nothing came of an attempt for PING_AFTER_MS: have its worker asked, or see what came of that."""
        now, worker_id = self._clock(), worker.worker_id
        beat = self._beats.get(worker_id)
        if beat is None:
            self._beats[worker_id] = _Beat(
                worker.epoch, now, 0, now, UNHEARD_INTERVAL_MS, answers_pings=False
            )
            return
        if beat.epoch != worker.epoch or not beat.answers_pings:
            return
        if not self._is_connected or now < self._grace_until_ms:
            return
        question = self._questions.get(worker_id)
        if question is None:
            if now - self._ponged.get(worker_id, -PING_AFTER_MS) >= PING_AFTER_MS:
                self._questions[worker_id] = _Question(role, now)
                self._to_ask.append((worker_id, role))
        elif question.num_unheard >= NUM_UNHEARD:
            self._lose(worker, "nobody listens")
        elif question.num_unheard == question.num_asked:
            question.num_asked += 1
            self._to_ask.append((worker_id, role))
        elif now - question.at_ms > (PONG_TIMEOUT_MS if has_token else PATIENT_PONG_TIMEOUT_MS):
            if beat.at_ms > question.at_ms:  # late, but there
                del self._questions[worker_id]
            else:
                self._lose(worker, "no answer")

    def take_to_ask(self) -> Sequence[tuple[str, Role]]:
        """Workers to be sent a Ping since the last call."""
        taken, self._to_ask = self._to_ask, []
        return taken

    def forget_old(self) -> None:
        now = self._clock()
        for worker_id, beat in list(self._beats.items()):
            if now - beat.at_ms > 100 * beat.interval_ms:
                for memory in (self._beats, self._ponged, self._questions, self._gone):
                    memory.pop(worker_id, None)

    def _lose(self, worker: WorkerRef, reason: str) -> None:
        _log.warning("worker does not answer", extra={"worker": worker.worker_id, "reason": reason})
        self._gone[worker.worker_id] = worker.epoch
        del self._questions[worker.worker_id]

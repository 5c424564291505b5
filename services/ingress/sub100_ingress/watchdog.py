"""One task that looks at all attempts: dead workers, silent ones, clients that need a keep-alive.

Timers per token would cost more than the tokens; a look every ``interval_s`` over what is in flight does
not, and an attempt is judged by what arrived between two looks.
"""

import asyncio
import logging

import msgspec

from sub100_proto import codec
from sub100_shared.bus import Incoming
from sub100_shared.clock import Clock

from .attempts import Attempt, AttemptTable

_log = logging.getLogger(__name__)

_ASK_INTERVAL_MS = 500.0

LAPSE_INTERVALS = 4
"""Heartbeats that a worker may miss before its streams are re-placed: one more than before it is no longer
placed, so that a worker which is only late keeps what it has."""


class Watchdog:
    """``look`` is pure but for the clock and the attempts it touches; ``run`` repeats it."""

    def __init__(
        self,
        table: AttemptTable,
        clock: Clock,
        *,
        keep_alive_s: float,
        first_token_timeout_s: float,
        stall_timeout_s: float,
        interval_s: float = 0.25,
    ) -> None:
        self._table = table
        self._clock = clock
        self._keep_alive_ms = keep_alive_s * 1e3
        self._first_token_timeout_ms = first_token_timeout_s * 1e3
        self._stall_timeout_ms = stall_timeout_s * 1e3
        self._interval_s = interval_s
        self._beats: dict[str, tuple[int, float, float]] = {}
        self._silent_since: dict[str, float] = {}
        self._poked: dict[str, float] = {}
        self._asked: dict[str, float] = {}

    def on_heartbeat(self, msg: Incoming) -> None:
        """Listener of ``subjects.heartbeat_all``."""
        try:
            beat = codec.decode_heartbeat(msg.data)
        except msgspec.MsgspecError:
            return
        self._beats[beat.worker_id] = (beat.epoch, self._clock(), beat.interval_s * 1e3)

    def look(self) -> None:
        """Judge every attempt once."""
        now = self._clock()
        seen: set[str] = set()
        for attempt in self._table:
            seen.add(attempt.nonce)
            self._judge(attempt, now)
        for memory in (self._silent_since, self._poked, self._asked):
            for nonce in memory.keys() - seen:
                del memory[nonce]
        for worker_id, (_, at, interval_ms) in list(self._beats.items()):
            if now - at > 100 * interval_ms:
                del self._beats[worker_id]

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            self.look()

    def _judge(self, attempt: Attempt, now: float) -> None:
        if self._is_dead(attempt, now):
            attempt.lose("worker_lost")
            return
        if attempt.has_gap and now - self._asked.get(attempt.nonce, -_ASK_INTERVAL_MS) >= _ASK_INTERVAL_MS:
            # the first ask may have been lost, too: the worker was perhaps not back on the bus yet
            self._asked[attempt.nonce] = now
            attempt.lose_gap_memory()
            attempt.ask_again()
        if attempt.is_live:
            attempt.is_live = False
            self._silent_since[attempt.nonce] = now
            self._poked.pop(attempt.nonce, None)
            return
        silent_ms = now - self._silent_since[attempt.nonce]
        if attempt.has_token and silent_ms > self._stall_timeout_ms:
            attempt.lose("worker_lost")
        elif not attempt.has_token and silent_ms > self._first_token_timeout_ms:
            attempt.lose("deadline_exceeded", elsewhere=False)
        elif now - self._poked.get(attempt.nonce, self._silent_since[attempt.nonce]) > self._keep_alive_ms:
            self._poked[attempt.nonce] = now
            attempt.poke()

    def _is_dead(self, attempt: Attempt, now: float) -> bool:
        """Its worker stopped beating, or came back as another life. A worker that was never heard
        (this ingress is new) is not judged."""
        beat = self._beats.get(attempt.worker.worker_id)
        if beat is None:
            return False
        epoch, at, interval_ms = beat
        return epoch > attempt.worker.epoch or now - at > LAPSE_INTERVALS * interval_ms

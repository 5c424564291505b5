"""One task that looks at all attempts: dead workers, silent ones, clients that need a keep-alive, and
attempts that nobody waits for.

Timers per token would cost more than the tokens; a look every ``interval_s`` over what is in flight does
not, and an attempt is judged by what arrived between two looks.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from sub100_proto.subjects import Role
from sub100_shared.attendance import Attendance
from sub100_shared.clock import Clock

from .attempts import Attempt, AttemptTable
from .liveness import PING_AFTER_MS, Liveness
from .strays import Stray, Strays

GAP_INTERVAL_MS: Final = 500.0
"""Between two asks for tokens that are missing."""
SILENT_INTERVAL_MS: Final = 2_000.0
"""Between two asks at an attempt of which nothing comes: its only event, or its last, may have been lost, and
nothing after it shows that. Who computes or waits sends nothing; who knows nothing of it says so."""

Ping = Callable[[str, Role], Awaitable[None]]
"""Asks a worker for a sign of life."""

Stop = Callable[[Stray], Awaitable[None]]
"""Tells a worker that nobody waits for an attempt."""


class Watchdog:
    """``look`` is pure but for the clock and the attempts it touches; ``run`` repeats it."""

    def __init__(
        self,
        table: AttemptTable,
        liveness: Liveness,
        strays: Strays,
        ping: Ping,
        stop: Stop,
        clock: Clock,
        *,
        keep_alive_s: float,
        first_token_timeout_s: float,
        stall_timeout_s: float,
        step_timeout_s: float,
        interval_s: float = 0.1,
    ) -> None:
        self._table = table
        self._liveness = liveness
        self._strays = strays
        self._ping = ping
        self._stop = stop
        self._clock = clock
        self._keep_alive_ms = keep_alive_s * 1e3
        self._first_token_timeout_ms = first_token_timeout_s * 1e3
        self._stall_timeout_ms = stall_timeout_s * 1e3
        self._step_timeout_ms = step_timeout_s * 1e3
        self._interval_s = interval_s
        self._attendance = Attendance(interval_s * 1e3, since_ms=clock())
        self._silent_since: dict[str, float] = {}
        self._poked: dict[str, float] = {}
        self._asked: dict[str, float] = {}

    def look(self) -> None:
        """Judge every attempt once."""
        now = self._clock()
        if self._attendance.was_away(now):
            self._liveness.excuse()
        seen: set[str] = set()
        for attempt in self._table:
            seen.add(attempt.nonce)
            self._judge(attempt, now)
        for memory in (self._silent_since, self._poked, self._asked):
            for nonce in memory.keys() - seen:
                del memory[nonce]
        self._liveness.forget_old()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            self.look()
            for worker_id, role in self._liveness.take_to_ask():
                await self._ping(worker_id, role)
            for stray in self._strays.take():
                await self._stop(stray)

    def _judge(self, attempt: Attempt, now: float) -> None:
        if self._liveness.is_dead(attempt.worker):
            attempt.lose("worker_lost")
            return
        source = None if attempt.has_token else attempt.source
        if source is not None and (self._liveness.is_dead(source) or self._liveness.is_impaired(source)):
            attempt.lose("kv_expired")  # gone with its worker; the pull would wait for it in vain
            return
        if attempt.has_gap:
            self._ask(attempt, now, GAP_INTERVAL_MS)
        if attempt.is_live:
            attempt.is_live = False
            self._silent_since[attempt.nonce] = now
            self._poked.pop(attempt.nonce, None)
            return
        silent_ms = now - self._silent_since[attempt.nonce]
        if silent_ms >= PING_AFTER_MS and not attempt.is_over:
            self._liveness.suspect(attempt.worker, attempt.role, has_token=attempt.has_token)
            if source is not None:
                self._liveness.suspect(source, "prefill", has_token=False)
        if silent_ms >= SILENT_INTERVAL_MS and attempt.claimed:
            self._ask(attempt, now, SILENT_INTERVAL_MS)
        if self._has_stalled(attempt, silent_ms):
            attempt.lose("worker_lost")
        elif not attempt.has_token and silent_ms > self._first_token_timeout_ms:
            attempt.lose("deadline_exceeded", elsewhere=False)
        elif now - self._poked.get(attempt.nonce, self._silent_since[attempt.nonce]) > self._keep_alive_ms:
            self._poked[attempt.nonce] = now
            attempt.poke()

    def _ask(self, attempt: Attempt, now: float, interval_ms: float) -> None:
        """Again and again: what is asked may be lost, too, while the worker is not back on the bus."""
        if now - self._asked.get(attempt.nonce, -interval_ms) >= interval_ms:
            self._asked[attempt.nonce] = now
            attempt.ask()

    def _has_stalled(self, attempt: Attempt, silent_ms: float) -> bool:
        if attempt.has_token and silent_ms > self._stall_timeout_ms:
            return True
        return silent_ms > self._step_timeout_ms and self._liveness.has_hung(
            attempt.worker, self._step_timeout_ms
        )

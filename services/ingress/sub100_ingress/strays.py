"""Attempts that run at a worker and that nobody here waits for: their worker is told to stop.

An Abort is one message, and nobody answers it: it is lost when ingress or worker is off the bus at that
moment, and it is never sent when ingress dies. What then goes on shows itself by its events.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import msgspec

from sub100_proto.stream import FirstToken, StreamEvent, Tokens
from sub100_proto.subjects import Role
from sub100_shared.clock import Clock

QUIET_MS: Final = 500.0
"""Events of an attempt that was fenced or told of so lately may have crossed the Abort."""

MAX_A_LOOK: Final = 256
_MAX_REMEMBERED: Final = 8192


class Stray(msgspec.Struct, frozen=True):
    attempt: str
    worker_id: str
    role: Role


class Strays:
    """Pure but for the clock. At most one Abort per attempt in QUIET_MS, and MAX_A_LOOK of them between two
    calls of ``take``; what is left out shows itself again, or ends by itself (KV by its lease)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._quiet_until_ms: OrderedDict[str, float] = OrderedDict()
        self._found: list[Stray] = []

    def on_fenced(self, attempt: str) -> None:
        """Nobody waits for it any more; its Abort, if it needs one, is on its way."""
        self._quiet_until_ms[attempt] = self._clock() + QUIET_MS
        self._quiet_until_ms.move_to_end(attempt)
        while len(self._quiet_until_ms) > _MAX_REMEMBERED:
            self._quiet_until_ms.popitem(last=False)

    def on_event(self, worker_id: str, event: StreamEvent) -> None:
        """An event of an unknown attempt. Only prefill workers send first tokens, only decode workers others;
        what has failed or is finished holds nothing."""
        match event:
            case FirstToken():
                role: Role = "prefill"
            case Tokens(finish_reason=""):
                role = "decode"
            case _:
                return
        is_quiet = self._clock() < self._quiet_until_ms.get(event.attempt, 0.0)
        if not is_quiet and len(self._found) < MAX_A_LOOK:
            self.on_fenced(event.attempt)
            self._found.append(Stray(event.attempt, worker_id, role))

    def take(self) -> Sequence[Stray]:
        """Who is to be sent an Abort since the last call."""
        found, self._found = self._found, []
        return found

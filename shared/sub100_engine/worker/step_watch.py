"""Whether the engine still makes steps, by its own count and as often as the worker beats; pure.

While streams only decode, a step is short; while a prompt is computed, a CPU may take seconds for one.
"""

from collections import deque
from typing import Final

from sub100_proto.fleet import Load
from sub100_shared.attendance import Attendance

MIN_STILL_S: Final = 2.0
"""A busy machine may keep a healthy core from running for a second."""
STILL_STEPS: Final = 5.0
"""As many of the longest steps of late."""
MAX_STILL_S: Final = 8.0
"""Also the limit while something else than decoding is under way."""
_NUM_STEPS: Final = 64


class StepWatch:
    """Times are of one monotonic clock, in seconds. ``look`` is called every ``interval_s``, or sooner."""

    def __init__(self, interval_s: float) -> None:
        self._attendance = Attendance(interval_s * 1e3)
        self._step = 0
        self._at_s = 0.0
        self._step_s: deque[float] = deque(maxlen=_NUM_STEPS)
        self.fault = ""
        """Why the engine is taken for hung, until it makes a step; empty while it is well."""

    def look(self, load: Load, *, only_decodes: bool, now_s: float) -> None:
        """``load`` is what the engine says of itself now; ``only_decodes``: all that runs has had a token."""
        num_steps, num_requests = load.step - self._step, load.num_running + load.num_waiting
        was_away = self._attendance.was_away(now_s * 1e3)
        if num_steps:
            if num_requests and not was_away:
                self._step_s.append((now_s - self._at_s) / num_steps)
            self._step, self._at_s, self.fault = load.step, now_s, ""
        elif self.fault:
            return
        elif was_away or not num_requests:
            self._at_s = now_s
        elif now_s - self._at_s > self._limit_s(only_decodes):
            self.fault = f"the engine makes no step, with {num_requests} requests in it"

    def _limit_s(self, only_decodes: bool) -> float:
        if not only_decodes:
            return MAX_STILL_S
        return min(MAX_STILL_S, max(MIN_STILL_S, STILL_STEPS * max(self._step_s, default=0.0)))

"""Whether the engine still makes steps, by its own count and as often as the worker beats; pure.

A step that is no longer than those of late is over soon. One with a chunk of a prompt may be longer than all
of them: ``prompt_pace`` says by how much.
"""

from collections import deque
from typing import Final

from sub100_proto.fleet import Load
from sub100_shared.attendance import Attendance

MIN_STILL_S: Final = 2.0
"""A busy machine may keep a healthy core from running for a second."""
STILL_STEPS: Final = 5.0
"""As many of the longest steps of late, and of the step to be expected."""
MAX_STILL_S: Final = 8.0
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

    def look(self, load: Load, *, prompt_step_s: float, now_s: float) -> None:
        """``load`` is what the engine says of itself now; ``prompt_step_s``: how long a step may take with
        the prompts that it has to compute, 0 if it has none."""
        num_steps, num_requests = load.step - self._step, load.num_running + load.num_waiting
        has_work = num_requests + load.num_pinned_blocks > 0
        was_away = self._attendance.was_away(now_s * 1e3)
        if num_steps:
            if has_work and not was_away:
                self._step_s.append((now_s - self._at_s) / num_steps)
            self._step, self._at_s, self.fault = load.step, now_s, ""
        elif self.fault:
            return
        elif was_away or not has_work:
            self._at_s = now_s
        elif now_s - self._at_s > self._limit_s(prompt_step_s):
            held = f"{num_requests} requests and {load.num_pinned_blocks} pinned blocks"
            self.fault = f"the engine makes no step, with {held} in it"

    def _limit_s(self, prompt_step_s: float) -> float:
        longest_s = max((prompt_step_s, *self._step_s))
        return min(MAX_STILL_S, max(MIN_STILL_S, STILL_STEPS * longest_s))

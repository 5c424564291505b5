"""Whether an observer was there himself: who stood still may hold no silence against others."""

import math
from typing import Final

LATE_MS: Final = 500.0
"""A look that comes so much later than it was due: what others said meanwhile is yet to be read."""


class Attendance:
    """Of somebody who looks every ``interval_ms``, or sooner. Times are of one monotonic clock."""

    def __init__(self, interval_ms: float, *, since_ms: float = -math.inf) -> None:
        """Before ``since_ms`` nothing was to be seen; without it, the first look is itself a late one."""
        self._max_pause_ms = interval_ms + LATE_MS
        self._looked_ms = since_ms

    def was_away(self, now_ms: float) -> bool:
        """To be asked once at each look: whether nobody looked for too long before it."""
        pause_ms = now_ms - self._looked_ms
        self._looked_ms = now_ms
        return pause_ms > self._max_pause_ms

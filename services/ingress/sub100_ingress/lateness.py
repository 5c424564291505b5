"""From when on an answer is late, by the answers of late. Pure.

Three times the 99th percentile: what is asked again was almost surely not merely slow, so that asking twice
stays a rarity at any speed of the machine.
"""

from collections import deque
from typing import Final

FLOOR_MS: Final = 5.0
"""A hop's transit and a pause of the callee's collector fit in."""
CEILING_MS: Final = 250.0
UNKNOWN_MS: Final = 30.0
"""Until enough answers were seen."""
TIMES: Final = 3.0
WINDOW: Final = 256
EVERY: Final = 32
"""Answers after which the percentile is taken again."""
ABSENT_MS: Final = 1_000.0
"""An answer that took longer says that its sender was away, nothing of how long answers take."""


class Lateness:
    """``after_ms`` lies between FLOOR_MS and CEILING_MS."""

    def __init__(self) -> None:
        self._took_ms: deque[float] = deque(maxlen=WINDOW)
        self._num_new = 0
        self.after_ms = UNKNOWN_MS

    def learn(self, took_ms: float) -> None:
        """An answer's time, late ones included: or the bound would never rise."""
        if took_ms > ABSENT_MS:
            return
        self._took_ms.append(took_ms)
        self._num_new += 1
        if self._num_new == EVERY:
            self._num_new = 0
            ordered = sorted(self._took_ms)
            p99_ms = ordered[len(ordered) * 99 // 100]
            self.after_ms = min(max(TIMES * p99_ms, FLOOR_MS), CEILING_MS)

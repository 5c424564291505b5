"""Whether Redis or an embedder may be asked: a dead one must cost nothing, a slow one little.

::

    closed --(a failed connection, or MAX_SLOW late answers in a row)--> open --(a probe answers)--> closed

Only a prober calls while it is open, so no request ever pays for finding out that it is back.
"""

from typing import Final

MAX_SLOW: Final = 5


class Breaker:
    """Starts open: nothing is known until the first probe."""

    def __init__(self) -> None:
        self.is_open = True
        self.reason = "not connected yet"
        self._num_slow = 0

    def answered(self) -> None:
        """A call was answered in time. Does not close: late news of an old connection proves nothing."""
        self._num_slow = 0

    def was_slow(self) -> None:
        """A call was not answered within its allotment."""
        self._num_slow += 1
        if self._num_slow >= MAX_SLOW:
            self.failed("slow")

    def failed(self, reason: str) -> None:
        """A call showed that it cannot be used."""
        if not self.is_open:
            self.is_open = True
            self.reason = reason

    def probed(self, reason: str) -> None:
        """A probe ended: well if ``reason`` is empty."""
        self.is_open, self.reason = bool(reason), reason
        self._num_slow = 0

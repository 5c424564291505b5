"""Whether Redis or an embedder may be asked: a dead one must cost nothing, a slow one little.

::

    closed --(a failed connection, or MAX_SLOW late answers in a row)--> open --(a probe answers)--> closed

Only a prober calls while it is open, so no request ever pays for finding out that it is back. It is open for
everybody, so what is late is the service's own judgement: how long a caller waits is a client's choice.
"""

import asyncio
from typing import Any, Final

MAX_SLOW: Final = 5


class Breaker:
    """Starts open: nothing is known until the first probe. A call that takes ``slow_s`` or longer is late."""

    def __init__(self, slow_s: float) -> None:
        self._slow_s = slow_s
        self.is_open = True
        self.reason = "not connected yet"
        self._num_slow = 0

    def answered(self) -> None:
        """A call was answered in time. Does not close: late news of an old connection proves nothing."""
        self._num_slow = 0

    def gave_up(self, running: "asyncio.Future[Any]", waited_s: float) -> None:
        """A caller waited for ``running`` no longer. It is late if it is not done when its time is over."""
        left_s = self._slow_s - waited_s
        if left_s <= 0:
            self.was_slow()
        else:
            asyncio.get_running_loop().call_later(left_s, self._judge, running)

    def was_slow(self) -> None:
        """A call was late."""
        self._num_slow += 1
        if self._num_slow >= MAX_SLOW:
            self.failed("slow")

    def _judge(self, running: "asyncio.Future[Any]") -> None:
        if not running.done():
            self.was_slow()

    def failed(self, reason: str) -> None:
        """A call showed that it cannot be used."""
        if not self.is_open:
            self.is_open = True
            self.reason = reason

    def probed(self, reason: str) -> None:
        """A probe ended: well if ``reason`` is empty."""
        self.is_open, self.reason = bool(reason), reason
        self._num_slow = 0

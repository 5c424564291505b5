"""How long a request waits for a place.

Before its first token it waits for a scheduler that restarts, and for nothing else: what a scheduler refuses
is refused at once; a retry is safe and the client knows best. After it, whatever cannot be placed now (NATS
is away, no scheduler answers, every worker is full or drains) is worth a short wait: the client sees a pause
instead of a broken answer.
"""

import asyncio
from typing import Final

from sub100_shared.clock import Clock
from sub100_shared.errors import Refused

_FIRST_DELAY_S: Final = 0.02
_MAX_DELAY_S: Final = 0.5


class Patience:
    """Of one exchange; ``timeout_ms`` bounds each time of waiting, from its first refusal on."""

    def __init__(self, clock: Clock, timeout_ms: float) -> None:
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._until_ms: float | None = None
        self._delay_s = _FIRST_DELAY_S

    async def wait(self, refused: Refused) -> None:
        """Pause before the next try; raises ``refused`` when the time is over."""
        now_ms = self._clock()
        if self._until_ms is None:
            self._until_ms = now_ms + self._timeout_ms
        left_ms = self._until_ms - now_ms
        if left_ms <= 0:
            raise refused
        await asyncio.sleep(min(self._delay_s, left_ms / 1e3))
        self._delay_s = min(2 * self._delay_s, _MAX_DELAY_S)

    @property
    def left_ms(self) -> float:
        return self._timeout_ms if self._until_ms is None else max(0.0, self._until_ms - self._clock())

    @property
    def is_wearing(self) -> bool:
        """It has waited for a good while: who was avoided may be back, or was only late."""
        return self._delay_s >= _MAX_DELAY_S

    def placed(self) -> None:
        """The stream goes on; the next loss is another matter."""
        self._until_ms = None
        self._delay_s = _FIRST_DELAY_S

"""Whether the cache is away for a tenant: then one request in a while asks, and the others pay nothing. Pure.

Each tenant's own: whose look-ups have too little time, or whose part of the store is down, is told the same.
"""

from typing import Final

import msgspec

from sub100_shared.clock import Clock

MAX_AWAY: Final = 3
"""So many look-ups in a row that could not be answered are no accident."""

PAUSE_MS: Final = 100.0


class _Silence(msgspec.Struct):
    num_away: int = 0
    until_ms: float = 0.0


class Absence:
    """``clock`` in milliseconds. A tenant whose last look-up was answered costs nothing here."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._silent: dict[str, _Silence] = {}

    def is_known(self, tenant: str) -> bool:
        """If not, ask; every ``PAUSE_MS`` one request is to ask again."""
        silence = self._silent.get(tenant)
        if silence is None or silence.num_away < MAX_AWAY:
            return False
        now_ms = self._clock()
        if now_ms < silence.until_ms:
            return True
        silence.until_ms = now_ms + PAUSE_MS
        return False

    def learn(self, tenant: str, *, is_away: bool) -> None:
        """What a look-up came to."""
        if not is_away:
            self._silent.pop(tenant, None)
            return
        silence = self._silent.setdefault(tenant, _Silence())
        silence.num_away += 1
        silence.until_ms = self._clock() + PAUSE_MS

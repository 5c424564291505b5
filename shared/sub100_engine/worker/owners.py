"""Which ingress processes still wait for the jobs that they gave: a lease, kept by their status messages.

Every service says once a second that it is there. An ingress that was heard and then said nothing for
LEASE_S, or that has stopped, reads no event any more: what runs for it runs for nobody. One that was never
heard is not judged, and nothing is held against one that could not have been heard: while the bus is away,
and when this process stood still.
"""

from typing import Final

from sub100_proto.fleet import State
from sub100_shared.attendance import Attendance
from sub100_shared.clock import Clock

LEASE_S: Final = 5.0
"""An ingress that was off the bus for 2 s has given its streams up and re-placed them."""

MAX_OWNERS: Final = 4096


class Owners:
    """Pure but for the clock. An ingress is known by the subject of its events, as jobs name it.
    ``take_gone`` is to be called every ``interval_s``, or sooner."""

    def __init__(self, clock: Clock, interval_s: float) -> None:
        self._clock = clock
        self._attendance = Attendance(interval_s * 1e3, since_ms=clock())
        self._heard_ms: dict[str, float] = {}
        self._stopped: set[str] = set()

    def on_status(self, events: str, state: State) -> None:
        if events not in self._heard_ms and len(self._heard_ms) >= MAX_OWNERS:
            return
        self._heard_ms[events] = self._clock()
        (self._stopped.add if state == "stopped" else self._stopped.discard)(events)

    def excuse(self) -> None:
        """Nobody could be heard until now: all silence starts anew."""
        self._heard_ms = dict.fromkeys(self._heard_ms, self._clock())

    def take_gone(self) -> list[str]:
        """Whose lease has ended since the last call; from then on they are unknown."""
        now = self._clock()
        if self._attendance.was_away(now):
            self.excuse()
        gone = [
            events
            for events, heard_ms in self._heard_ms.items()
            if events in self._stopped or now - heard_ms > LEASE_S * 1e3
        ]
        for events in gone:
            del self._heard_ms[events]
            self._stopped.discard(events)
        return gone

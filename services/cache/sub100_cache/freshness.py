"""How long ago this region was known to have applied every invalidation of every region."""

from sub100_shared.clock import Clock

from .store.log_place import Place


class Freshness:
    """``clock`` in milliseconds. ``max_staleness_s`` None: there is no log to lag behind."""

    def __init__(self, clock: Clock, max_staleness_s: float | None) -> None:
        self._clock = clock
        self._max_staleness_ms = None if max_staleness_s is None else max_staleness_s * 1e3
        self._confirmed_ms: float | None = None
        self.place = Place()
        """In the log, applied up to here."""

    @property
    def is_cut_off(self) -> bool:
        """Then no answer may be served: somebody may have invalidated it."""
        if self._max_staleness_ms is None:
            return False
        return self._confirmed_ms is None or self._clock() - self._confirmed_ms > self._max_staleness_ms

    def confirm(self, place: Place, at_ms: float) -> None:
        """``place`` was the log's end at ``at_ms`` or later, and is applied."""
        self.place = place
        self._confirmed_ms = at_ms

    def lose(self) -> None:
        """What was known of the log does not hold any more: cut off until the next confirmation."""
        self.place = Place()
        self._confirmed_ms = None

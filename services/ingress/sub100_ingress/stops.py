"""Stop strings over chunk borders: what may still become a match is held back, nothing else is."""


class StopMatcher:
    """Feeds text through; the earliest match ends it, and no part of a stop string is ever emitted.

    Of matches that begin at one place any will do: the emitted text is the same.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        if not all(stops):
            raise ValueError("a stop string must not be empty")
        self._stops = stops
        self._held = ""

    def push(self, text: str) -> tuple[str, bool]:
        """Returns (text that is safe to emit, whether a stop string was completed)."""
        self._held += text
        found = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        first = min(found, default=-1)
        hold_from = self._first_possible_start()
        if first >= 0 and first <= hold_from:
            emit, self._held = self._held[:first], ""
            return emit, True
        emit, self._held = self._held[:hold_from], self._held[hold_from:]
        return emit, False

    def finish(self) -> str:
        """The text held back, when it ended without completing a stop string."""
        found = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        held, self._held = self._held[: min(found)] if found else self._held, ""
        return held

    def _first_possible_start(self) -> int:
        """Where the earliest suffix begins that is a proper prefix of a stop string."""
        length = len(self._held)
        longest = max(len(stop) for stop in self._stops) - 1
        for start in range(max(0, length - longest), length):
            tail = self._held[start:]
            if any(len(stop) > len(tail) and stop.startswith(tail) for stop in self._stops):
                return start
        return length

"""Stop strings in a stream of text."""

from collections.abc import Sequence


class StopMatcher:
    """Cuts text at the first stop string, whatever the borders of the pieces.

    The match that *completes* first wins (at one end, the longest): the only rule that can be decided
    while text arrives and that no chunking can change. Held back is exactly the longest end of the
    text that may still become a stop string; nothing of a stop string is ever emitted.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self._stopped = False

    def push(self, text: str, *, may_stop: bool = True) -> tuple[str, bool]:
        """What of the text so far can go out, and whether a stop string was met (all after it is lost).

        Unless it ``may_stop``, no stop string ends in this text; one that begins in it may end later.
        """
        if self._stopped:
            return "", True
        num_seen = len(self._held)
        text = self._held + text
        start = self._first_match(text, num_seen) if may_stop else -1
        if start >= 0:
            self._held = ""
            self._stopped = True
            return text[:start], True
        safe = min((open_start(text, stop) for stop in self._stops), default=len(text))
        self._held = text[safe:]
        return text[:safe], False

    def finish(self) -> str:
        """The held-back text, when generation ended without the rest of a stop string."""
        held, self._held = self._held, ""
        return held

    def _first_match(self, text: str, num_seen: int) -> int:
        """Where the match begins that ends first after so many characters; -1 if none does."""
        matches = [
            (start + len(stop), start)
            for stop in self._stops
            if (start := text.find(stop, max(0, num_seen - len(stop) + 1))) >= 0
        ]
        return min(matches)[1] if matches else -1


def open_start(text: str, stop: str) -> int:
    """Where the longest proper prefix of ``stop`` that ends ``text`` starts; len(text) if none does."""
    start = text.find(stop[0], max(0, len(text) - len(stop) + 1))
    while start >= 0:
        if stop.startswith(text[start:]):
            return start
        start = text.find(stop[0], start + 1)
    return len(text)

"""Whether KV can be handed over to and from a worker, judged by its own transfers (ADR 25). Pure: time is the
caller's, in monotonic seconds.

A failed transfer has two ends and does not say which is at fault. What tells them apart:

- **Somebody it works with**: one success, with whomever, wipes the slate. A worker beside one bad peer has
  others.
- **How long**: a peer that died gets no work after its lapse, so that it fails its partners for a moment,
  however often. Only a peer that has failed us for ``after_s`` counts.
- **How many**: two such peers say that it is us. A single one may as well be at fault itself, and whoever of
  the two has more peers is found first; only after four times as long do we say so too.

A worker that is out rests, then is open for one hand-over: what becomes of it decides. Rests double while it
falls back. They are longer than the gap that ends a streak, so that the trials of a peer that is out never
add up to evidence against us.
"""

from typing import Final

import msgspec

MIN_FAILURES: Final = 3
MAX_PEERS: Final = 256
_MAX_NAMED: Final = 3
_ALONE: Final = 4.0
_GAP: Final = 3.0
_TRIAL: Final = 2.0
_REST: Final = 6.0
_MAX_REST: Final = 24.0
"""In ``after_s``: a sole peer's streak, the pause that ends a streak, the wait for a trial's outcome, the
first rest and the longest."""


class _Streak(msgspec.Struct):
    """Failures with one peer and no success since, by when their transfers began."""

    first_s: float
    last_s: float
    num: int = 0

    def add(self, began_s: float) -> None:
        self.first_s = min(self.first_s, began_s)
        self.last_s = max(self.last_s, began_s)
        self.num += 1

    @property
    def span_s(self) -> float:
        return self.last_s - self.first_s


class TransferHealth:
    """``began``, then ``succeeded`` or ``failed``, or neither: a transfer that was aborted, or found its KV
    gone, says nothing."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._streaks: dict[str, _Streak] = {}
        self._closed_until_s = 0.0
        self._is_on_trial = False
        self._rest_s = 0.0
        self._recovered_s = float("-inf")
        self.fault = ""
        """Why the worker is out; empty while it is well."""

    def is_open(self, now_s: float) -> bool:
        """Whether hand-overs may be placed here: the worker is well, or one is to be tried."""
        return not self.fault or now_s >= self._closed_until_s

    def began(self, now_s: float) -> None:
        """A hand-over begins; the first after a rest is the trial, and no other shall come before its end."""
        if self.fault and self.is_open(now_s):
            self._is_on_trial = True
            self._closed_until_s = now_s + _TRIAL * self._after_s

    def succeeded(self, now_s: float) -> None:
        self._streaks.clear()
        if self.fault:
            self.fault = ""
            self._recovered_s = now_s

    def failed(self, peer: str, began_s: float, now_s: float) -> None:
        """``peer`` names the other end."""
        if self.fault:
            if self._is_on_trial:
                self._rest(now_s)
            return
        self._note(peer, began_s)
        failing = {name: s.span_s for name, s in self._streaks.items() if s.span_s >= self._after_s}
        num_failures = sum(streak.num for streak in self._streaks.values())
        if num_failures < MIN_FAILURES or not failing:
            return
        longest_s = max(failing.values())
        if len(failing) > 1 or longest_s >= _ALONE * self._after_s:
            names = ", ".join(sorted(failing)[:_MAX_NAMED])
            self.fault = f"KV transfers fail: for {longest_s:.0f} s with {names}; none succeeded"
            if now_s - self._recovered_s > self._rest_s:
                self._rest_s = 0.0
            self._rest(now_s)

    def _note(self, peer: str, began_s: float) -> None:
        gap_s = _GAP * self._after_s
        for old in [name for name, streak in self._streaks.items() if began_s - streak.last_s >= gap_s]:
            del self._streaks[old]
        if peer not in self._streaks and len(self._streaks) >= MAX_PEERS:
            del self._streaks[next(iter(self._streaks))]
        self._streaks.setdefault(peer, _Streak(began_s, began_s)).add(began_s)

    def _rest(self, now_s: float) -> None:
        longer_s = max(2 * self._rest_s, _REST * self._after_s)
        self._rest_s = min(longer_s, _MAX_REST * self._after_s)
        self._closed_until_s = now_s + self._rest_s
        self._is_on_trial = False
        self._streaks.clear()

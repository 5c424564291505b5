"""How long a look-up may go before the dispatch. Pure.

Beside each other they cost a miss nothing, and a hit a dispatch that is cancelled. The look-up goes first
only as far as the budget allows (what remains, less the predicted TTFT), and only when that buys something:

- workers have no headroom: a dispatch that is cancelled would have held up others, so it may take all of it;
- the tenant's questions tend to be found in the exact tier: as long as that tier usually takes, and again.
"""

from typing import Final

MIN_HIT_RATIO: Final = 0.2
"""Least share of exact hits that is worth the wait: about what a wait costs (1 ms) over what a dispatch that
is cancelled costs (2 ms of CPU over five processes, and a step of an engine)."""

_WEIGHT: Final = 0.1
_FIRST_RATIO: Final = 1.0
"""A tenant that nothing is known of is taken for one that hits."""

_FIRST_HIT_MS: Final = 1.0


class Lead:
    """Learns how often each tenant hits exactly, and how long that takes; one float per tenant."""

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}
        self._hit_ms = _FIRST_HIT_MS

    def allowed_ms(
        self,
        tenant: str,
        *,
        remaining_ms: float,
        allotted_ms: float,
        predicted_ttft_ms: float,
        has_headroom: bool,
    ) -> float:
        """From the moment the look-up left, at most its allotment; 0: dispatch at once."""
        slack_ms = max(0.0, min(allotted_ms, remaining_ms - predicted_ttft_ms))
        if not has_headroom:
            return slack_ms
        if self._ratios.get(tenant, _FIRST_RATIO) < MIN_HIT_RATIO:
            return 0.0
        return min(slack_ms, 2 * self._hit_ms)

    def learn(self, tenant: str, exact_hit_ms: float | None) -> None:
        """A look-up's time if it hit exactly, else None."""
        ratio = self._ratios.get(tenant, _FIRST_RATIO)
        self._ratios[tenant] = ratio + _WEIGHT * ((exact_hit_ms is not None) - ratio)
        if exact_hit_ms is not None:
            self._hit_ms += _WEIGHT * (exact_hit_ms - self._hit_ms)

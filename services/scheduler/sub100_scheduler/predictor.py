"""How long a worker's prefill takes: a line per worker, learnt online.

``ms = fixed + per_token * tokens``, by recursive least squares with exponential forgetting (Haykin,
Adaptive Filter Theory, ch. 10) on the features (1, kilotokens). Coefficients are bounded, and so is
the covariance: without that, equal prompts alone would let it grow without limit. A new worker starts
from what the whole fleet has taught, the first one from a prior. All of it costs microseconds.
"""

import math
from typing import Final

FORGETTING: Final = 0.98
PRIOR_FIXED_MS: Final = 4.0
PRIOR_MS_PER_KILOTOKEN: Final = 50.0
MAX_FIXED_MS: Final = 1e3
MIN_MS_PER_KILOTOKEN: Final = 0.1
MAX_MS_PER_KILOTOKEN: Final = 5e4
MAX_OBSERVED_MS: Final = 6e5
_PRIOR_VARIANCE: Final = (4.0, 1e4)
"""Of fixed and slope, in units of the variance of a measurement (about (5 ms)^2)."""

_OUTLIER_FACTOR: Final = 5.0
_OUTLIER_MS: Final = 20.0
_TRUSTED_AFTER: Final = 8


class _Line:
    """``fixed`` in ms and ``slope`` in ms per kilotoken, with their covariance."""

    __slots__ = ("fixed", "num_observed", "p00", "p01", "p11", "slope")

    def __init__(self, fixed: float, slope: float) -> None:
        self.fixed = fixed
        self.slope = slope
        self.p00, self.p01, self.p11 = _PRIOR_VARIANCE[0], 0.0, _PRIOR_VARIANCE[1]
        self.num_observed = 0

    def learn(self, kilotokens: float, ms: float) -> None:
        expected = self.fixed + self.slope * kilotokens
        if self.num_observed >= _TRUSTED_AFTER:
            ms = min(ms, _OUTLIER_FACTOR * expected + _OUTLIER_MS)
        self.num_observed += 1
        g0 = self.p00 + self.p01 * kilotokens
        g1 = self.p01 + self.p11 * kilotokens
        scale = FORGETTING + g0 + g1 * kilotokens
        error = ms - expected
        self.fixed = _clamp(self.fixed + error * g0 / scale, 0.0, MAX_FIXED_MS)
        self.slope = _clamp(self.slope + error * g1 / scale, MIN_MS_PER_KILOTOKEN, MAX_MS_PER_KILOTOKEN)
        p00 = (self.p00 - g0 * g0 / scale) / FORGETTING
        p01 = (self.p01 - g0 * g1 / scale) / FORGETTING
        p11 = (self.p11 - g1 * g1 / scale) / FORGETTING
        # Scaling the whole matrix keeps it positive definite.
        excess = max(p00 / _PRIOR_VARIANCE[0], p11 / _PRIOR_VARIANCE[1], 1.0)
        self.p00, self.p01, self.p11 = p00 / excess, p01 / excess, p11 / excess


class Predictor:
    """One line per worker id; a restarted worker keeps its line, a forgotten one starts anew."""

    def __init__(self) -> None:
        self._fleet = _Line(PRIOR_FIXED_MS, PRIOR_MS_PER_KILOTOKEN)
        self._lines: dict[str, _Line] = {}

    def observe(self, worker_id: str, *, num_tokens: int, prefill_ms: float) -> None:
        """Learn from a prefill that computed ``num_tokens``; what no clock can have measured is ignored."""
        if num_tokens <= 0 or not 0.0 < prefill_ms <= MAX_OBSERVED_MS:
            return
        line = self._lines.get(worker_id)
        if line is None:
            line = self._lines[worker_id] = _Line(self._fleet.fixed, self._fleet.slope)
        line.learn(num_tokens / 1e3, prefill_ms)
        self._fleet.learn(num_tokens / 1e3, prefill_ms)

    def forget(self, worker_id: str) -> None:
        self._lines.pop(worker_id, None)

    def ms_per_token(self, worker_id: str) -> float:
        return self._lines.get(worker_id, self._fleet).slope / 1e3

    def ttft_ms(self, worker_id: str, *, num_ahead: int, num_tokens: int, max_chunk_tokens: int) -> float:
        """Time to the first token of a prompt with ``num_tokens`` to compute, behind ``num_ahead``
        others. The fixed part is paid once per chunk of the worker's budget."""
        line = self._lines.get(worker_id, self._fleet)
        total = num_ahead + num_tokens
        num_chunks = math.ceil(total / max_chunk_tokens) if max_chunk_tokens > 0 else 1
        return line.fixed * max(num_chunks, 1) + line.slope * total / 1e3


def _clamp(value: float, low: float, high: float) -> float:
    return max(low, min(value, high))

"""Durations counted in logarithmic buckets, so that percentiles of any mix of minutes are one sum away.

Bucket ``i`` holds ``(GAMMA ** (i - 1), GAMMA ** i]`` times MIN_MS and answers with the middle that bounds the
relative error: at most ``(GAMMA - 1) / (GAMMA + 1)`` = 3 % (DDSketch, Masson et al., VLDB 2019).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

GAMMA: Final = 1.06
MIN_MS: Final = 0.01
MAX_BUCKET: Final = 400
"""0.01 ms * 1.06 ** 400 is more than a day."""

_LOG_GAMMA: Final = math.log(GAMMA)


def bucket(ms: float) -> int:
    """0 for what is too short to matter."""
    if ms <= MIN_MS:
        return 0
    return min(MAX_BUCKET, math.ceil(math.log(ms / MIN_MS) / _LOG_GAMMA))


def value(index: int) -> float:
    return 0.0 if index <= 0 else float(MIN_MS * GAMMA**index * 2 / (1 + GAMMA))


def percentiles(counts: Mapping[int, int], shares: Sequence[float]) -> list[float | None]:
    """The values below which ``shares`` (rising, each in 0..1) of the counts lie; None where nothing was
    counted."""
    total = sum(counts.values())
    if not total:
        return [None] * len(shares)
    found: list[float | None] = []
    seen = 0
    ordered = iter(sorted(counts.items()))
    index = 0
    for share in shares:
        rank = max(1, math.ceil(share * total - 1e-9))
        while seen < rank:
            index, count = next(ordered)
            seen += count
        found.append(value(index))
    return found

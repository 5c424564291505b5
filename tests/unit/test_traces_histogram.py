"""Percentiles out of buckets, against the sorted values."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sub100_traces import histogram

DURATIONS = st.lists(st.floats(0.02, 1e6), min_size=1, max_size=200)


@given(DURATIONS, st.sampled_from([0.5, 0.9, 0.99]))
def test_percentiles_are_within_three_per_cent_of_the_values(durations: list[float], share: float) -> None:
    counts = Counter(map(histogram.bucket, durations))
    exact = sorted(durations)[max(0, math.ceil(share * len(durations) - 1e-9) - 1)]
    [found] = histogram.percentiles(counts, [share])
    assert found == pytest.approx(exact, rel=0.0301)


def test_percentiles_of_nothing_are_unknown() -> None:
    assert histogram.percentiles({}, [0.5, 0.9]) == [None, None]


@pytest.mark.parametrize(("ms", "bucket"), [(-1, 0), (0, 0), (0.01, 0), (1e12, histogram.MAX_BUCKET)])
def test_bucket_is_bounded(ms: float, bucket: int) -> None:
    assert histogram.bucket(ms) == bucket

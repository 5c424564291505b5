"""That the comparison of log probabilities, on which much rests, forgives near ties and nothing else."""

import pytest
from tests.contract.answer_shapes import assert_same_rows

from sub100_proto.logprobs import Row

ROW = Row(-1.0, 1, ((7, -1.0), (8, -1.5), (9, -2.0)))


@pytest.mark.parametrize(
    "found",
    [
        ROW,
        Row(-1.0001, 1, ((7, -1.0001), (8, -1.5002), (9, -1.9999))),
        Row(-1.0, 1, ((7, -1.0), (8, -1.5), (4, -2.0002))),  # the last of the top ones is a near tie
    ],
)
def test_noise_and_a_tie_at_the_border_are_no_difference(found: Row) -> None:
    assert_same_rows([found], [ROW])


@pytest.mark.parametrize(
    "found",
    [
        Row(-1.01, 1, ROW.top),
        Row(-1.0, 2, ROW.top),
        Row(-1.0, 1, ((7, -1.0), (4, -1.5), (9, -2.0))),
        Row(-1.0, 1, ((7, -1.5), (8, -1.0), (9, -2.0))),
        Row(-1.0, 1, ((7, -1.0), (8, -1.5), (9, -2.1))),
        Row(-1.0, 1, ((7, -1.0), (8, -1.5))),
        Row(-1.0, 1, ((7, -1.0), (7, -1.5), (9, -2.0))),
    ],
    ids=["own", "rank", "another id", "swapped", "value", "missing", "twice"],
)
def test_any_other_difference_is_found(found: Row) -> None:
    with pytest.raises(AssertionError):
        assert_same_rows([found], [ROW])


def test_far_ranks_may_differ_by_what_lies_between_near_ties() -> None:
    assert_same_rows([Row(-8.0, 1010)], [Row(-8.0, 1000)])
    with pytest.raises(AssertionError):
        assert_same_rows([Row(-8.0, 1030)], [Row(-8.0, 1000)])


def test_a_row_too_many_is_a_difference() -> None:
    with pytest.raises(AssertionError):
        assert_same_rows([ROW, ROW], [ROW])

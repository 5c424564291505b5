"""Who may join a pool, and what is said about it."""

import logging
from typing import Any

import pytest
from tests.unit.scheduler_beats import beat

from sub100_scheduler.fleet import IN_PLACE_MS, MAX_REFUSED, Change, Fleet
from sub100_scheduler.registration import difference, refusal

SAME: dict[str, Any] = {"dtype": "bfloat16", "connector": "sub100", "hashes": "ab12"}
SAME |= {"revision": "a1", "tensor_parallel": 1}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"model": "n", "layout": "x"}, "model n, but pool default has m (w1)"),
        ({"revision": "b2", "layout": "x"}, "model revision b2, but pool default has a1 (w1)"),
        ({"tensor_parallel": 2, "layout": "x"}, "tensor parallel size 2, but pool default has 1 (w1)"),
        ({"block_size": 64, "layout": "x"}, "block size 64, but pool default has 32 (w1)"),
        ({"dtype": "float32", "layout": "x"}, "dtype float32, but pool default has bfloat16 (w1)"),
        ({"connector": "nixl"}, "connector nixl, but pool default has sub100 (w1)"),
        ({"hashes": "cd34"}, "block hash cd34, but pool default has ab12 (w1)"),
        ({"layout": "x"}, "KV layout x, but pool default has bf16/32 (w1)"),
    ],
)
def test_difference_names_the_first_trait_that_explains_it(changed: dict[str, Any], words: str) -> None:
    assert difference(beat("w2", **(SAME | changed)), beat("w1", **SAME)) == words


def test_traits_that_one_side_does_not_tell_are_no_difference() -> None:
    assert difference(beat("old"), beat("new", **SAME)) == ""
    assert difference(beat("new", **SAME), beat("old")) == ""


def test_those_in_place_are_right_however_many_and_however_old_the_others_are() -> None:
    here = beat("here", epoch=100)
    odd = [beat(f"odd{i}", epoch=i, layout="x", refusal="yes", state="starting") for i in range(1, 9)]
    for worker in odd:
        assert "KV layout" in refusal(worker, [here], odd)


def test_oldest_candidate_goes_first_where_nobody_is_in_place() -> None:
    old, young = beat("old", epoch=1), beat("young", epoch=2, layout="x")
    assert refusal(old, [], [young]) == ""
    assert "KV layout" in refusal(young, [], [old])
    assert refusal(young, [], []) == ""


def test_scheduler_that_hears_the_odd_one_first_still_keeps_those_in_place() -> None:
    """After its restart: the odd one has just become ready, the others have been for long."""
    fleet = Fleet()
    fleet.observe(beat("odd", epoch=9, layout="x"), 0)
    assert fleet.observe(beat("a", epoch=1), 10) is Change.JOINED
    assert fleet.observe(beat("b", epoch=2), 20) is Change.JOINED
    assert fleet.observe(beat("odd", epoch=9, layout="x"), 500) is Change.LEFT
    assert [worker.worker_id for worker in fleet.workers] == ["a", "b"]


def test_worker_that_loaded_for_long_does_not_push_those_in_place_out() -> None:
    fleet = Fleet()
    fleet.observe(beat("young", epoch=9), 0)
    assert fleet.observe(beat("old", epoch=1, layout="x"), IN_PLACE_MS) is Change.IGNORED
    assert fleet.observe(beat("young", epoch=9), IN_PLACE_MS + 1) is Change.NONE


def test_worker_that_comes_back_changed_is_no_measure_for_itself() -> None:
    fleet = Fleet()
    fleet.observe(beat("a", epoch=1), 0)
    fleet.observe(beat("b", epoch=2), 0)
    assert fleet.observe(beat("a", epoch=3, layout="x"), 2 * IN_PLACE_MS) is Change.LEFT
    assert [worker.worker_id for worker in fleet.workers] == ["b"]


def test_verdict_is_repeated_until_the_worker_knows() -> None:
    fleet = Fleet()
    fleet.observe(beat("a"), 0)
    fleet.observe(beat("b", epoch=2, layout="x"), 1)
    first = fleet.take_verdicts()
    assert [(verdict.worker_id, verdict.epoch) for verdict in first] == [("b", 2)]
    assert fleet.take_verdicts() == []
    fleet.observe(beat("b", epoch=2, layout="x"), 2)
    assert fleet.take_verdicts() == first
    fleet.observe(beat("b", epoch=2, layout="x", state="starting", refusal=first[0].refusal), 3)
    assert fleet.take_verdicts() == []


def test_refused_worker_is_told_when_it_fits_and_joins_when_it_says_ready() -> None:
    fleet = Fleet()
    fleet.observe(beat("a"), 0)
    fleet.observe(beat("b", epoch=2, layout="x"), 1)
    fleet.observe(beat("a", state="stopped"), 2)
    knows = beat("b", epoch=2, layout="x", state="starting", refusal="KV layout")
    assert fleet.observe(knows, 3) is Change.IGNORED
    assert [verdict.refusal for verdict in fleet.take_verdicts()] == [""]
    assert fleet.observe(beat("b", epoch=2, layout="x"), 4) is Change.JOINED


def test_refusals_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    fleet = Fleet()
    fleet.observe(beat("a"), 0)
    with caplog.at_level(logging.ERROR):
        for number in range(2 * MAX_REFUSED):
            fleet.observe(beat(f"odd{number}", epoch=2, layout="x"), 1)
    assert len(caplog.records) == MAX_REFUSED
    assert len(fleet.take_verdicts()) == MAX_REFUSED

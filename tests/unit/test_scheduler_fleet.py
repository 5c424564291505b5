"""Who is in the fleet: joining, lapsing, new lives, workers that do not fit their pool."""

import logging
from typing import Any

import pytest
from tests.unit.scheduler_beats import beat

from sub100_proto.fleet import Load
from sub100_scheduler.fleet import Change, Fleet


def ids(fleet: Fleet) -> list[str]:
    return [worker.worker_id for worker in fleet.workers]


def test_worker_lapses_after_three_silent_intervals() -> None:
    fleet = Fleet()
    assert fleet.observe(beat("a", interval_s=0.5), 0) is Change.JOINED
    assert fleet.lapse(1_500) == []
    assert fleet.lapse(1_501) == ["a"]
    assert ids(fleet) == []


def test_worker_stays_while_it_is_heard() -> None:
    fleet = Fleet()
    for now_ms in range(0, 10_000, 500):
        fleet.observe(beat("a"), now_ms)
        assert fleet.lapse(now_ms) == []
    assert ids(fleet) == ["a"]


def test_worker_leaves_at_once_when_it_says_stopped() -> None:
    fleet = Fleet()
    fleet.observe(beat("a"), 0)
    assert fleet.observe(beat("a", state="stopped"), 1) is Change.LEFT
    assert ids(fleet) == []


def test_new_epoch_is_a_new_life_with_nothing_in_flight() -> None:
    fleet = Fleet()
    fleet.observe(beat("a", epoch=1), 0)
    first = fleet.get("a")
    assert first is not None
    first.inflight_prefill_tokens = 500
    assert fleet.observe(beat("a", epoch=2), 1) is Change.JOINED
    second = fleet.get("a")
    assert second is not None
    assert (second.heartbeat.epoch, second.num_tokens_ahead) == (2, 0)


def test_heartbeat_of_an_older_life_is_ignored() -> None:
    fleet = Fleet()
    fleet.observe(beat("a", epoch=2), 0)
    assert fleet.observe(beat("a", epoch=1, state="stopped"), 1) is Change.IGNORED
    worker = fleet.get("a")
    assert worker is not None
    assert worker.heartbeat.epoch == 2


@pytest.mark.parametrize(
    "other",
    [{"layout": "fp16/32"}, {"block_size": 64}, {"model": "n"}],
    ids=["layout", "block_size", "model"],
)
def test_worker_that_cannot_hand_kv_over_is_refused_and_named_once(
    other: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    fleet = Fleet()
    fleet.observe(beat("a"), 0)
    with caplog.at_level(logging.ERROR):
        for now_ms in (1, 2, 3):
            assert fleet.observe(beat("b", "decode", **other), now_ms) is Change.IGNORED
    assert ids(fleet) == ["a"]
    assert [record.__dict__["worker_id"] for record in caplog.records] == ["b"]


def test_worker_of_another_pool_may_differ() -> None:
    fleet = Fleet()
    fleet.observe(beat("a"), 0)
    assert fleet.observe(beat("b", layout="other", pool="other"), 0) is Change.JOINED


def test_refused_worker_sets_the_measure_when_the_others_are_gone() -> None:
    fleet = Fleet()
    fleet.observe(beat("a"), 0)
    fleet.observe(beat("b", layout="other"), 1_400)
    fleet.lapse(1_600)
    assert fleet.observe(beat("b", layout="other"), 1_900) is Change.JOINED
    assert ids(fleet) == ["b"]


def test_starting_worker_is_judged_only_when_it_is_ready() -> None:
    fleet = Fleet()
    fleet.observe(beat("a"), 0)
    assert fleet.observe(beat("b", state="starting", layout=""), 1) is Change.JOINED
    assert fleet.observe(beat("b", layout="other"), 2) is Change.LEFT
    assert fleet.observe(beat("b", layout="other"), 3) is Change.IGNORED


def test_load_is_the_larger_of_heartbeat_and_in_flight() -> None:
    fleet = Fleet()
    fleet.observe(beat("a", load=Load(num_waiting_tokens=300, num_running=2, num_waiting=1)), 0)
    worker = fleet.get("a")
    assert worker is not None
    assert (worker.num_tokens_ahead, worker.num_requests) == (300, 3)
    worker.inflight_prefill_tokens = 900
    worker.inflight_prefills = 4
    assert (worker.num_tokens_ahead, worker.num_requests) == (900, 4)

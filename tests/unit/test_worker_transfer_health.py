"""Whose fault it is that transfers fail: one worker's judgement by its own, on given times."""

import pytest

from sub100_engine.worker.transfer_health import MAX_PEERS, TransferHealth

AFTER_S = 5.0
ALONE_S = 20.0
REST_S = 30.0
MAX_REST_S = 120.0


class Clocked:
    """A worker's health, and transfers that fail at given times."""

    def __init__(self) -> None:
        self.health = TransferHealth(AFTER_S)

    def fail(self, at_s: float, *peers: str, took_s: float = 0.0) -> None:
        for peer in peers:
            self.health.failed(peer, at_s, at_s + took_s)

    def steadily(self, start_s: float, end_s: float, *peers: str) -> float:
        """Fail once a second until ``end_s``; returns when it began to be out, or ``inf``."""
        at_s = start_s
        while at_s <= end_s:
            self.fail(at_s, *peers)
            if self.health.fault:
                return at_s
            at_s += 1
        return float("inf")


@pytest.fixture
def worker() -> Clocked:
    return Clocked()


def test_worker_that_fails_with_two_peers_is_out_after_a_while(worker: Clocked) -> None:
    assert worker.steadily(100, 130, "p1", "p2") == 100 + AFTER_S
    assert worker.health.fault == "KV transfers fail: for 5 s with p1, p2; none succeeded"
    assert not worker.health.is_open(100 + AFTER_S)


def test_worker_beside_one_bad_peer_stays_while_another_works(worker: Clocked) -> None:
    for at_s in range(100, 300):
        worker.fail(at_s, "bad")
        worker.health.succeeded(at_s + 0.5)
        assert not worker.health.fault


def test_worker_of_a_sole_peer_says_so_only_after_four_times_as_long(worker: Clocked) -> None:
    """The peer, which fails with others as well, is found by then."""
    assert worker.steadily(100, 130, "p1") == 100 + ALONE_S
    assert "p1" in worker.health.fault


@pytest.mark.parametrize("took_s", [0.0, 10.0])
def test_peers_that_died_are_not_the_workers_fault(worker: Clocked, took_s: float) -> None:
    """R05's kind: a dead worker is placed for a moment yet, and all of its transfers fail, at once or when
    their time is up; a whole rack of them does the same."""
    for number in range(400):
        worker.fail(100 + number * 0.005, *(f"p{n}" for n in range(8)), took_s=took_s)
    assert not worker.health.fault


def test_peers_that_die_one_after_the_other_do_not_add_up(worker: Clocked) -> None:
    for start_s in range(100, 200, 10):
        for number in range(20):
            worker.fail(start_s + number * 0.1, f"p{start_s}")
    assert not worker.health.fault


def test_failures_far_apart_are_no_streak(worker: Clocked) -> None:
    for at_s in range(100, 1000, 15):
        worker.fail(at_s, "p1", "p2")
    assert not worker.health.fault


def test_two_failures_are_no_evidence(worker: Clocked) -> None:
    worker.fail(100, "p1")
    worker.fail(106, "p1")
    worker.fail(106, "p2")
    assert not worker.health.fault


def test_worker_that_is_out_is_tried_once_after_its_rest_and_back_with_a_success(worker: Clocked) -> None:
    out_s = worker.steadily(100, 130, "p1", "p2")
    assert not worker.health.is_open(out_s + REST_S - 0.1)
    assert worker.health.is_open(out_s + REST_S)
    assert worker.health.fault, "open for a trial is not ready"
    worker.health.began(out_s + REST_S)
    assert not worker.health.is_open(out_s + REST_S + 1), "one trial at a time"
    worker.health.succeeded(out_s + REST_S + 1)
    assert worker.health.fault == ""
    assert worker.health.is_open(out_s + REST_S + 1)


def test_rests_double_while_trials_fail(worker: Clocked) -> None:
    now_s = worker.steadily(100, 130, "p1", "p2")
    for rest_s in (30, 60, 120, MAX_REST_S, MAX_REST_S):
        assert not worker.health.is_open(now_s + rest_s - 0.1)
        now_s += rest_s
        worker.health.began(now_s)
        now_s += 1
        worker.fail(now_s, "p1")


def test_worker_that_falls_back_soon_rests_longer_and_one_that_held_does_not(worker: Clocked) -> None:
    out_s = worker.steadily(100, 130, "p1", "p2")
    worker.health.succeeded(out_s)
    again_s = worker.steadily(out_s + 1, out_s + 20, "p1", "p2")
    assert not worker.health.is_open(again_s + 2 * REST_S - 0.1)
    worker.health.succeeded(again_s)
    later_s = worker.steadily(again_s + 300, again_s + 330, "p1", "p2")
    assert worker.health.is_open(later_s + REST_S)


def test_trial_that_nobody_hears_of_is_repeated(worker: Clocked) -> None:
    """The client left, or the answer ended with its first token."""
    out_s = worker.steadily(100, 130, "p1", "p2")
    worker.health.began(out_s + REST_S)
    assert worker.health.is_open(out_s + REST_S + 2 * AFTER_S)


def test_failures_that_were_under_way_do_not_make_the_rest_longer(worker: Clocked) -> None:
    out_s = worker.steadily(100, 130, "p1", "p2")
    worker.fail(out_s, "p1", took_s=REST_S - 1)
    assert worker.health.is_open(out_s + REST_S)


def test_any_success_ends_the_fault_without_a_trial(worker: Clocked) -> None:
    out_s = worker.steadily(100, 130, "p1", "p2")
    worker.health.succeeded(out_s + 1)
    assert worker.health.fault == ""


def test_trials_of_a_peer_that_is_out_are_no_evidence_against_the_worker(worker: Clocked) -> None:
    """What its only peer's trials look like from here, after it was found out."""
    worker.steadily(100, 100 + AFTER_S, "p1")
    at_s, rest_s = 100 + AFTER_S, REST_S
    for _ in range(10):
        at_s += rest_s
        rest_s = min(2 * rest_s, MAX_REST_S)
        worker.fail(at_s, "p1")
        assert not worker.health.fault


def test_peers_that_are_remembered_are_bounded(worker: Clocked) -> None:
    worker.fail(100, *(f"p{n}" for n in range(4 * MAX_PEERS)))
    assert len(worker.health._streaks) == MAX_PEERS

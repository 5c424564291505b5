"""When an answer is late: by how long answers take, on any machine."""

import random

from sub100_ingress.lateness import (
    ABSENT_MS,
    CEILING_MS,
    EVERY,
    FLOOR_MS,
    TIMES,
    UNKNOWN_MS,
    WINDOW,
    Lateness,
)


def after(*took_ms: float) -> float:
    lateness = Lateness()
    for each in took_ms:
        lateness.learn(each)
    return lateness.after_ms


def test_late_is_what_a_slow_machine_may_take_while_nothing_is_known() -> None:
    assert after() == UNKNOWN_MS
    assert after(*[0.5] * (EVERY - 1)) == UNKNOWN_MS


def test_late_is_three_times_the_99th_percentile() -> None:
    took_ms = [10.0 + 0.01 * i for i in range(WINDOW)]
    random.Random(1).shuffle(took_ms)
    assert after(*took_ms) == TIMES * (10.0 + 0.01 * (WINDOW * 99 // 100))


def test_late_is_never_sooner_than_the_floor() -> None:
    assert after(*[0.3] * WINDOW) == FLOOR_MS


def test_late_is_never_later_than_the_ceiling() -> None:
    assert after(*[0.9 * ABSENT_MS] * WINDOW) == CEILING_MS


def test_late_follows_a_machine_that_becomes_slow_and_quick_again() -> None:
    lateness = Lateness()
    for took_ms, expected in ((0.5, FLOOR_MS), (20.0, 60.0), (0.5, FLOOR_MS)):
        for _ in range(WINDOW):
            lateness.learn(took_ms)
        assert lateness.after_ms == expected


def test_answers_of_a_replica_that_was_away_say_nothing_of_lateness() -> None:
    lateness = Lateness()
    for _ in range(WINDOW):
        lateness.learn(1.0)
        lateness.learn(ABSENT_MS + 1)
    assert lateness.after_ms == FLOOR_MS

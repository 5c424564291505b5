import pytest

from sub100_ingress.absence import MAX_AWAY, PAUSE_MS, Absence


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0.0

    def __call__(self) -> float:
        return self.now_ms


@pytest.fixture(name="clock")
def _clock() -> Clock:
    return Clock()


@pytest.fixture(name="absence")
def _absence(clock: Clock) -> Absence:
    absence = Absence(clock)
    for _ in range(MAX_AWAY):
        assert not absence.is_known("t")
        absence.learn("t", is_away=True)
    return absence


def test_absence_is_known_after_so_many_look_ups_in_a_row(absence: Absence) -> None:
    assert absence.is_known("t")


def test_absence_is_not_known_of_a_cache_that_answers_in_between() -> None:
    absence = Absence(Clock())
    for _ in range(2 * MAX_AWAY):
        for _ in range(MAX_AWAY - 1):
            absence.learn("t", is_away=True)
        absence.learn("t", is_away=False)
    absence.learn("t", is_away=True)
    assert not absence.is_known("t")


def test_absence_for_one_tenant_is_none_for_another(absence: Absence) -> None:
    assert not absence.is_known("u")


def test_one_request_asks_again_after_each_pause(absence: Absence, clock: Clock) -> None:
    for _ in range(3):
        clock.now_ms += PAUSE_MS
        assert [absence.is_known("t") for _ in range(4)] == [False, True, True, True]


def test_absence_ends_with_the_first_answer(absence: Absence, clock: Clock) -> None:
    clock.now_ms += PAUSE_MS
    assert not absence.is_known("t")
    absence.learn("t", is_away=False)
    assert [absence.is_known("t") for _ in range(4)] == [False] * 4

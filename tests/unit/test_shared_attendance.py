"""An observer that stood still is told so, once."""

from sub100_shared.attendance import LATE_MS, Attendance

INTERVAL_MS = 100.0
MAX_PAUSE_MS = INTERVAL_MS + LATE_MS


def test_observer_was_away_at_the_one_look_that_comes_too_late() -> None:
    attendance = Attendance(INTERVAL_MS, since_ms=1_000.0)
    assert not attendance.was_away(1_000.0 + MAX_PAUSE_MS)
    late_ms = 1_000.0 + 2 * MAX_PAUSE_MS + 1
    assert attendance.was_away(late_ms)
    assert not attendance.was_away(late_ms), "the look itself ended the absence"
    assert not attendance.was_away(late_ms + INTERVAL_MS)


def test_observer_was_away_before_its_first_look_unless_it_had_begun() -> None:
    assert Attendance(INTERVAL_MS).was_away(0.0)
    assert not Attendance(INTERVAL_MS, since_ms=0.0).was_away(0.0)

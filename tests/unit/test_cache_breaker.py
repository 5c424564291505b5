"""The cache's breaker."""

from sub100_cache.breaker import MAX_SLOW, Breaker


def closed() -> Breaker:
    breaker = Breaker()
    breaker.probed("")
    return breaker


def test_breaker_is_open_until_the_first_probe() -> None:
    breaker = Breaker()
    assert breaker.is_open
    breaker.answered()
    assert breaker.is_open
    breaker.probed("")
    assert not breaker.is_open


def test_breaker_opens_at_once_when_a_connection_fails() -> None:
    breaker = closed()
    breaker.failed("ConnectionError")
    assert breaker.is_open
    assert breaker.reason == "ConnectionError"


def test_breaker_opens_only_after_late_answers_in_a_row() -> None:
    breaker = closed()
    for _ in range(3):
        for _ in range(MAX_SLOW - 1):
            breaker.was_slow()
        breaker.answered()
    assert not breaker.is_open
    for _ in range(MAX_SLOW):
        breaker.was_slow()
    assert breaker.is_open


def test_breaker_starts_to_count_anew_when_a_probe_closed_it() -> None:
    breaker = closed()
    for _ in range(MAX_SLOW):
        breaker.was_slow()
    breaker.probed("late")
    assert breaker.is_open
    breaker.probed("")
    breaker.was_slow()
    assert not breaker.is_open

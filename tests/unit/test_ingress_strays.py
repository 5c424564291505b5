"""Attempts that nobody waits for: whom to tell, how often, how many at once."""

from sub100_ingress.strays import MAX_A_LOOK, QUIET_MS, Stray, Strays
from sub100_proto.stream import Failed, FirstToken, Timing, Tokens


class Lab:
    """Strays on a clock that the test moves."""

    def __init__(self) -> None:
        self.ms = 0.0
        self.strays = Strays(lambda: self.ms)

    def tokens(self, attempt: str) -> list[Stray]:
        self.strays.on_event("d1", Tokens(attempt, 3, (7,)))
        return list(self.strays.take())


def test_stray_is_told_to_the_worker_that_runs_it() -> None:
    lab = Lab()
    lab.strays.on_event("p1", FirstToken("a", 7, 0, Timing()))
    lab.strays.on_event("d1", Tokens("b", 3, (7, 8)))
    assert lab.strays.take() == [Stray("a", "p1", "prefill"), Stray("b", "d1", "decode")]
    assert lab.strays.take() == []


def test_stray_that_is_over_needs_nothing() -> None:
    lab = Lab()
    lab.strays.on_event("d1", Tokens("a", 3, (7,), "stop"))
    lab.strays.on_event("d1", Failed("b", "worker_lost"))
    assert lab.strays.take() == []


def test_stray_that_goes_on_is_told_again_after_a_while_only() -> None:
    lab = Lab()
    assert lab.tokens("a")
    lab.ms += QUIET_MS - 1
    assert not lab.tokens("a")
    lab.ms += 1
    assert lab.tokens("a")


def test_event_that_crossed_its_abort_is_no_stray() -> None:
    lab = Lab()
    lab.strays.on_fenced("a")
    lab.ms += QUIET_MS - 1
    assert not lab.tokens("a")
    lab.ms += 1
    assert lab.tokens("a")  # the Abort was lost


def test_strays_of_one_look_are_bounded_and_the_rest_comes_later() -> None:
    lab = Lab()
    for number in range(2 * MAX_A_LOOK):
        lab.strays.on_event("d1", Tokens(f"a{number}", 3, (7,)))
    assert len(lab.strays.take()) == MAX_A_LOOK
    assert lab.tokens(f"a{2 * MAX_A_LOOK - 1}")

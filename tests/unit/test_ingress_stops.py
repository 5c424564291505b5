import pytest
from hypothesis import given
from hypothesis import strategies as st

from sub100_ingress.stops import StopMatcher

STOPS = st.lists(st.text("ab\n", min_size=1, max_size=4), min_size=1, max_size=4)
PIECES = st.lists(st.text("ab\nc", max_size=4), max_size=10)


def oracle(text: str, stops: list[str], num_free: int = 0) -> tuple[str, bool]:
    """Read letter by letter; the first stop that is complete cuts, the longest of those that are. None is
    looked for in the first ``num_free`` letters."""
    for end in range(num_free + 1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            return text[: end - max(map(len, complete))], True
    return text, False


@given(STOPS, PIECES)
def test_matcher_cuts_where_the_oracle_cuts_for_any_chunking(stops: list[str], pieces: list[str]) -> None:
    expected, expected_stop = oracle("".join(pieces), stops)
    matcher = StopMatcher(stops)
    emitted, stopped = "", False
    for piece in pieces:
        emit, stopped = matcher.push(piece)
        emitted += emit
    assert stopped == expected_stop
    assert emitted + matcher.finish() == expected


@given(STOPS, PIECES, PIECES)
def test_matcher_cuts_only_where_a_stop_ends_in_text_that_may_stop(
    stops: list[str], free: list[str], pieces: list[str]
) -> None:
    expected, expected_stop = oracle("".join(free + pieces), stops, len("".join(free)))
    matcher = StopMatcher(stops)
    emitted, stopped = "", False
    for i, piece in enumerate(free + pieces):
        emit, stopped = matcher.push(piece, may_stop=i >= len(free))
        emitted += emit
    assert stopped == expected_stop
    assert emitted + matcher.finish() == expected


@given(STOPS, PIECES)
def test_matcher_holds_back_exactly_what_may_still_match(stops: list[str], pieces: list[str]) -> None:
    matcher = StopMatcher(stops)
    seen, emitted = "", ""
    for piece in pieces:
        seen += piece
        emit, stopped = matcher.push(piece)
        emitted += emit
        if stopped:
            break
        held = seen[len(emitted) :]
        open_ends = [k for stop in stops for k in range(1, len(stop)) if seen.endswith(stop[:k])]
        assert len(held) == max(open_ends, default=0)


@pytest.mark.parametrize(
    ("stops", "pieces", "emitted", "rest"),
    [
        (["\nUser:"], ["Hi.\n", "Us", "er", ": no"], ["Hi.", "", "", ""], ""),
        (["\nUser:"], ["Hi.\n", "Us"], ["Hi.", ""], "\nUs"),
        (["\nUser:"], ["Hi.\n", "You"], ["Hi.", "\nYou"], ""),
        (["Hello"], ["Hello world"], [""], ""),
        (["aab"], ["aa", "a", "b"], ["", "a", ""], ""),
        (["END"], ["x", "END", "more"], ["x", "", ""], ""),
        ([], ["anything"], ["anything"], ""),
        (["🇫🇷"], ["🇫", "🇷!"], ["", ""], ""),
    ],
)
def test_matcher_emits_as_early_as_it_may(
    stops: list[str], pieces: list[str], emitted: list[str], rest: str
) -> None:
    matcher = StopMatcher(stops)
    assert [matcher.push(piece)[0] for piece in pieces] == emitted
    assert matcher.finish() == rest


def test_matcher_stays_stopped_after_a_match() -> None:
    matcher = StopMatcher(["."])
    assert matcher.push("a.b") == ("a", True)
    assert matcher.push("c.") == ("", True)
    assert matcher.finish() == ""

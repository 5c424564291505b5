"""Questions about two things in which neither is first: the two stand in the order of the alphabet."""

from collections.abc import Sequence
from typing import Final

from .lexicon import CLAUSE_OPENERS
from .tokens import Token
from .wordlists import words

_SYMMETRIC: Final = words(
    "difference differences distance relationship similarity similarities connection comparison"
)
_LONGEST_SIDE: Final = 4
_BETTER: Final = words(
    """
    better worse faster slower cheaper healthier safer bigger smaller stronger heavier lighter taller older
    younger easier harder warmer colder hotter longer shorter larger closer
    """
)
_ALIKE: Final = words("same related similar different identical interchangeable equivalent equal")
_MIXED: Final = words("mix blend")
_TOGETHER: Final = words("take eat use drink wear plant wash store")

_JOINTS: Final = words("between from or and as compare vs")
_IN_TURN: Final = words("then first last before after afterward and or , than not")
_MAIN: Final = words("main key major biggest")

_BETTER_OF: Final = "<better-of>"
_ALIKE_OF: Final = "<alike>"
_COMPARE: Final = "<compare>"


def symmetric(tokens: tuple[Token, ...], texts: tuple[str, ...]) -> tuple[Token, ...] | None:
    """None: nothing is compared here, or it matters which comes first."""
    if _JOINTS.isdisjoint(texts):
        return None
    return (
        _difference(tokens, texts)
        or _distance(tokens, texts)
        or _better(tokens, texts)
        or _alike(tokens, texts)
        or _compared(tokens, texts)
        or _mixed(tokens, texts)
    )


def _difference(tokens: tuple[Token, ...], texts: tuple[str, ...]) -> tuple[Token, ...] | None:
    if texts[-4:] == (",", "what", "is", "difference") and texts.count("vs") == 1 and texts.count(",") == 1:
        middle = texts.index("vs")
        left, right = tokens[:middle], tokens[middle + 1 : -4]
        return _difference_of(left, right) if _is_side(left) and _is_side(right) else None
    if texts[:2] == ("how", "do") and texts[-1] == "differ" and texts.count("and") == 1:
        middle = texts.index("and")
        return _difference_of(tokens[2:middle], tokens[middle + 1 : -1])
    for between, joint in (("different", "from"), ("differ", "from")):
        for place in range(3, len(texts) - 2):
            if (
                texts[0] == "how"
                and texts[1] in ("is", "do")
                and texts[place : place + 2] == (between, joint)
            ):
                return _difference_of(tokens[2:place], tokens[place + 2 :])
    if "between" not in texts or texts[-1] == "between":
        return None
    place = texts.index("between")
    if not place or texts[place - 1] not in _SYMMETRIC or texts[place:].count("and") != 1:
        return None
    middle = texts.index("and", place)
    left, right = tokens[place + 1 : middle], tokens[middle + 1 :]
    is_main = place == 4 and texts[2] in _MAIN
    if (place > 3 and not is_main) or texts[:2] != ("what", "is") or not (_is_side(left) and _is_side(right)):
        return None
    if texts[place - 1] in ("difference", "differences") and not is_main:
        return _difference_of(left, right)
    return (*tokens[:place], Token("between", ""), *_sorted(left, right))


def _distance(tokens: tuple[Token, ...], texts: tuple[str, ...]) -> tuple[Token, ...] | None:
    """``how far is A from B``, ``distance from A to B``: the way back is as long."""
    if "from" not in texts:
        return None
    place = texts.index("from")
    if texts[:3] == ("how", "far", "is") and place > 3:
        left, right = tokens[3:place], tokens[place + 1 :]
        if [token.text for token in left] == ["it"]:
            return _there_and_back((), right)
        is_plain = _is_side(left) and _is_side(right) and not {"to", "between"} & set(texts)
        return _far(_sorted(left, right)) if is_plain else None
    if place and texts[place - 1] == "distance":
        is_asked = texts[: place - 1] in ((), ("what", "is"))
        return _there_and_back(() if is_asked else tokens[: place - 1], tokens[place + 1 :])
    return None


def _there_and_back(head: Sequence[Token], ends: Sequence[Token]) -> tuple[Token, ...] | None:
    texts = [token.text for token in ends]
    if texts.count("to") != 1 or any(text[0].isdigit() for text in texts):
        return None
    middle = texts.index("to")
    left, right = ends[:middle], ends[middle + 1 :]
    return (*head, *_far(_sorted(left, right))) if _is_side(left) and _is_side(right) else None


def _far(ends: tuple[Token, ...]) -> tuple[Token, ...]:
    distance = Token("distance", "", "the")
    return (Token("what", "what"), Token("is", "is"), distance, Token("between", ""), *ends)


def _better(tokens: tuple[Token, ...], texts: tuple[str, ...]) -> tuple[Token, ...] | None:
    """``which is better for X, A or B``, ``is A or B better for X``."""
    if texts.count("or") != 1:
        return None
    middle = texts.index("or")
    if texts[0] in ("what", "which", "who"):
        start = 3 if texts[1] == "one" else 2
        if texts[start - 1] != "is" or texts[start] not in _BETTER or texts.count(",") > 1:
            return None
        end = texts.index(",") if "," in texts else start + 1
        left, right = tokens[end + ("," in texts) : middle], tokens[middle + 1 :]
        better = tokens[start:end]
    elif texts[0] == "is":
        places = [place for place in range(middle + 2, len(texts)) if texts[place] in _BETTER]
        if not places:
            return None
        left, right, better = tokens[1:middle], tokens[middle + 1 : places[0]], tokens[places[0] :]
    else:
        return None
    if not _are_apart(left, right):
        return None
    return (Token(_BETTER_OF, ""), *better, Token(",", ""), *_sorted(left, right, "or"))


def _alike(tokens: tuple[Token, ...], texts: tuple[str, ...]) -> tuple[Token, ...] | None:
    """``are A and B the same``, ``is A the same as B``."""
    if texts[0] != "is":
        return None
    if texts[-1] in _ALIKE and texts.count("and") == 1:
        middle = texts.index("and")
        left, right, alike = tokens[1:middle], tokens[middle + 1 : -1], tokens[-1]
    elif texts.count("same") == 1 and texts[texts.index("same") + 1 :][:1] == ("as",):
        place = texts.index("same")
        left, right, alike = tokens[1:place], tokens[place + 2 :], tokens[place]
    else:
        return None
    if not _are_apart(left, right):
        return None
    return (Token(_ALIKE_OF, ""), alike, *_sorted(left, right))


def _compared(tokens: tuple[Token, ...], texts: tuple[str, ...]) -> tuple[Token, ...] | None:
    if texts[0] != "compare":
        return None
    places = [place for place in range(2, len(texts)) if texts[place] in ("and", "with", "to", "vs")]
    if len(places) != 1:
        return None
    left, right = tokens[1 : places[0]], tokens[places[0] + 1 :]
    if not _are_apart(left, right):
        return None
    return (Token(_COMPARE, ""), *_sorted(left, right))


def _mixed(tokens: tuple[Token, ...], texts: tuple[str, ...]) -> tuple[Token, ...] | None:
    """``mix A and B``, ``take A and B together``, up to where another clause begins."""
    if texts.count("and") != 1:
        return None
    middle = texts.index("and")
    starts = [
        place for place in range(max(0, middle - _LONGEST_SIDE), middle) if texts[place] in _MIXED | _TOGETHER
    ]
    if not starts or starts[-1] + 1 >= middle:
        return None
    start = starts[-1]
    end = middle + 1
    while end < len(texts) and texts[end] not in CLAUSE_OPENERS | {",", "together", "that"}:
        end += 1
    if texts[start] in _TOGETHER and texts[end : end + 1] != ("together",):
        return None
    left, right = tokens[start + 1 : middle], tokens[middle + 1 : end]
    if not _are_apart(left, right):
        return None
    return (*tokens[: start + 1], *_sorted(left, right), *tokens[end:])


def _are_apart(left: Sequence[Token], right: Sequence[Token]) -> bool:
    """No word before the first of them may go with both: ``raw fish or meat``."""
    if not _is_side(left) or not _is_side(right):
        return False
    return len(left) == 1 or (left[0].article != "" and right[0].article != "")


def _is_side(tokens: Sequence[Token]) -> bool:
    return 0 < len(tokens) <= _LONGEST_SIDE and not any(
        token.text in CLAUSE_OPENERS | _IN_TURN for token in tokens
    )


def _sorted(left: Sequence[Token], right: Sequence[Token], joint: str = "and") -> tuple[Token, ...]:
    first, second = sorted((tuple(left), tuple(right)), key=lambda side: [token.text for token in side])
    return (*first, Token(joint, ""), *second)


def _difference_of(left: Sequence[Token], right: Sequence[Token]) -> tuple[Token, ...]:
    head = (Token("what", "what"), Token("is", "is"), Token("difference", "", "the"), Token("between", ""))
    return (*head, *_sorted(left, right))

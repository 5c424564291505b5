"""Where capitals make another thing: a unit (``mW`` and ``MW``), a name (``Mercury`` and ``mercury``), an
acronym (``WHO`` and ``who``). What ``keeps_case`` is compared as written; of the rest capitals may be missing
where one side has none at all, as careless people write, and nothing else hangs on them."""

import re
from collections.abc import Sequence
from typing import Final

from .ambiguous import ACRONYMS
from .lexicon import AUXILIARIES, CASE_MATTERS, CLAUSE_OPENERS, IMPERATIVES, WH_WORDS
from .names import NAMES, PAIRS
from .tokens import Token
from .wordlists import words

_ALONE: Final = re.compile(r"[munpkMGTP]?(?:[bB](?:ps|/s)?|W|Wh|V|A|Ah|Hz|g|S|N|J|Pa)")
_TITLED: Final = words(
    "do is in of my we it to on at by an as be he if me no or so up us go am if hi ok mr dr ms"
)
_LONGEST_UNIT: Final = 4
_OPENS: Final = (
    WH_WORDS | AUXILIARIES | IMPERATIVES | CLAUSE_OPENERS | {"i", "a", "an", "the"}
) - CASE_MATTERS
"""What may begin a question in one wording and stand within it in another."""


def keeps_case(raw: str, *, follows_number: bool) -> bool:
    """``raw`` is a word as written: a unit behind a number, an identifier with a digit, or a symbol."""
    if any(letter.isdigit() for letter in raw) or (follows_number and len(raw) <= _LONGEST_UNIT):
        return True
    if raw.islower() or raw.isupper():
        return False
    if len(raw) == 2 and raw.isalpha() and raw.istitle():
        return raw.lower() not in _TITLED
    return _ALONE.fullmatch(raw) is not None


def differs_in_case(asked: Sequence[Token], stored: Sequence[Token], *, may_be_careless: bool = True) -> bool:
    """Whether a word within both questions has other capitals in one of them, and that may mean something."""
    one, other = _within(asked), _within(stored)
    common = one.keys() & other.keys()
    if any(
        one[text] != other[text] for text in common if len(set(one[text])) > 1 and len(set(other[text])) > 1
    ):
        return True  # the name and the word stand in each, and each where the other did
    differing = [text for text in common if set(one[text]) != set(other[text])]
    if not differing:
        return False
    is_careless = may_be_careless and (_has_no_capitals(asked) or _has_no_capitals(stored))
    paired = _paired(asked) & _paired(stored) if is_careless else frozenset()
    return any(
        text not in paired and _may_differ(text, {*one[text], *other[text]}, is_careless=is_careless)
        for text in differing
    )


def _paired(tokens: Sequence[Token]) -> frozenset[str]:
    """Words that stand nowhere but in names of two words."""
    texts = ["", *(token.text for token in tokens), ""]
    inside: set[str] = set()
    outside: set[str] = set()
    for before, text, after in zip(texts, texts[1:], texts[2:], strict=False):
        is_paired = (before, text) in PAIRS or (text, after) in PAIRS
        (inside if is_paired else outside).add(text)
    return frozenset(inside - outside)


def _may_differ(text: str, raws: set[str], *, is_careless: bool) -> bool:
    if len({raw.casefold() for raw in raws}) > 1:  # another spelling, so only capitals of names tell
        return text not in NAMES and any(raw[:1].isupper() and not _is_acronym(raw) for raw in raws)
    if text in _OPENS and all(raw.islower() or raw.istitle() for raw in raws):
        return False
    if not text.isascii():
        return True
    if text in ACRONYMS and any(raw.isupper() for raw in raws):
        return True
    return not is_careless or text in CASE_MATTERS or text not in NAMES


def _is_acronym(raw: str) -> bool:
    """``TV``, and several of them."""
    return raw.isupper() or (len(raw) > 2 and raw[:-1].isupper() and raw.endswith("s"))


def _within(tokens: Sequence[Token]) -> dict[str, list[str]]:
    """Words and how they are written, each time, but for those that begin a sentence and those that were put
    there."""
    found: dict[str, list[str]] = {}
    for place, token in enumerate(tokens):
        begins = not place or (tokens[place - 1].text == "," and tokens[place - 1].raw in ".?!:")
        if not begins and token.raw:
            found.setdefault(token.text, []).append(token.raw)
    return found


def _has_no_capitals(tokens: Sequence[Token]) -> bool:
    return all(token.raw == token.raw.lower() for token in tokens)

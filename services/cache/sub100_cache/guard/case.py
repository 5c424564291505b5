"""Where capitals make another unit or symbol: ``mW`` and ``MW``, ``Mb`` and ``MB``, ``5 g`` and ``5 G``,
``Co`` and ``CO``. What stands here keeps its capitals when words are compared."""

import itertools
import re
from collections.abc import Sequence
from typing import Final

from .tokens import Token
from .typos import is_known
from .wordlists import words

_NUMBER: Final = re.compile(r"\d+(?:[.,]\d+)*")
_COUNTED: Final = re.compile(
    r"[mM][A-Za-z]{0,3}(?:/[a-z]+)?|[A-Za-z]?[bB](?:its?|ytes?)?(?:ps|/[a-z]+)?|[gGkK]"
)
"""Behind a number: milli or mega, bits or bytes, grams or a network's generation, kelvin or thousands."""

_ALONE: Final = re.compile(r"[munpkMGTP]?(?:[bB](?:ps|/s)?|W|Wh|V|A|Ah|Hz|g|S|N|J|Pa)")
_TITLED: Final = words(
    "do is in of my we it to on at by an as be he if me no or so up us go am if hi ok mr dr ms"
)
_PLAIN_UNITS: Final = frozenset({"GB", "KB", "kB", "TB", "mL"})
"""Capitals with which they mean what they mean without."""


def keeps_case(raw: str, *, follows_number: bool) -> bool:
    """``raw`` is one word as written, maybe with its number before it (``12MB/s``)."""
    letters = _NUMBER.sub("", raw, count=1) if raw[:1].isdigit() else raw
    if raw in _PLAIN_UNITS:
        return False
    if follows_number or letters != raw:
        return _COUNTED.fullmatch(letters) is not None and (follows_number or letters not in ("k", "K"))
    if letters.islower() or letters.isupper():
        return False
    if len(letters) == 2 and letters.isalpha() and letters.istitle():
        return letters.lower() not in _TITLED
    return _ALONE.fullmatch(letters) is not None


def is_named_otherwise(asked: Sequence[Token], stored: Sequence[Token]) -> bool:
    """Whether a common word is a name in one question alone: ``get a Visa``, ``get a visa``. Both are of
    people who write capitals: they begin with one, and not every word does."""
    one, other = ({token.text: token.raw for token in _within(tokens)} for tokens in (asked, stored))
    if _has_no_case(one) or _has_no_case(other):
        return False
    shared = one.keys() & other.keys()
    return any(_is_name(one[text]) != _is_name(other[text]) and is_known(text) for text in shared)


def _within(tokens: Sequence[Token]) -> list[Token]:
    """Words that begin no sentence or clause; acronyms have no other case."""
    return [
        token
        for before, token in itertools.pairwise(tokens)
        if before.text != "," and token.raw[:1].isalpha() and not token.raw.isupper()
    ]


def _is_name(raw: str) -> bool:
    return raw[0].isupper()


def _has_no_case(raws: dict[str, str]) -> bool:
    return bool(raws) and all(map(_is_name, raws.values()))

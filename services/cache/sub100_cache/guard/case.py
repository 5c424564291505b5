"""Where capitals make another unit or symbol: ``mW`` and ``MW``, ``Mb`` and ``MB``, ``5 g`` and ``5 G``,
``Co`` and ``CO``. What stands here keeps its capitals when words are compared."""

import re
from typing import Final

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

"""One notation of dates, times, degrees and euros: a month by its name, an hour by its am or pm."""

import re
from typing import Final

from .lexicon import WORD_TALK

_DIGIT: Final = re.compile(r"\d")
_MONTHS: Final = "january february march april may june july august september october november december"
_MONTH: Final = "|".join(_MONTHS.split())
_DAY: Final = r"(\d{1,2})(?:st|nd|rd|th)?"
_MONTH_FIRST: Final = re.compile(
    rf"\b({_MONTH}) {_DAY}(?:(?:, ?| )(\d{{4}}))?(?![\w:]|[.,]\d)", re.IGNORECASE
)
_DAY_FIRST: Final = re.compile(rf"\b{_DAY} (?:of )?({_MONTH})(?:(?:, ?| )(\d{{4}}))?(?![\w:])", re.IGNORECASE)
_HOUR: Final = re.compile(r"(?<![\d:.])(1[01]|[1-9])(?::([0-5]\d))? ?([ap])\.?m\b\.?", re.IGNORECASE)
_DEGREES: Final = re.compile(r"(?<=\d) ?° ?([CF])\b")
_EURO: Final = re.compile(r"€ ?(\d+(?:[.,]\d+)*)(?![\w.,]*\d)|(?<![\w.,])(\d+(?:[.,]\d+)*) ?€")
_EUROS: Final = re.compile(r"(?<=\d) (?:euros?|EUR)\b")
_OF_NOTATION: Final = re.compile(
    rf"\b(?:{'|'.join(sorted(WORD_TALK))}|formats?|formatted|notation|written|style|comma|symbol|sign|abbreviat\w+"
    r"|military|24.hour|12.hour|american|british|regex)\b|\"",
    re.IGNORECASE,
)
"""Where one of these stands, the notation may be what is asked about."""

_OF_LETTERS: Final = re.compile(
    r"\b(?:initialisms?|capital\w*|uppercase|parenthes\w+|brackets?|headings?|titles?|right|correct\w*"
    r"|short form|how long|how many|upper|lower|characters?)\b",
    re.IGNORECASE,
)
"""And where one of these does, the letters of an abbreviation."""

_WORDS: Final = r"(?P<words>(?:[A-Za-z]+[ -]){1,6}[A-Za-z]+)"
_SHORT_LAST: Final = re.compile(rf"\b{_WORDS} \((?P<letters>[A-Z]{{2,6}})\)")
_SHORT_FIRST: Final = re.compile(rf"\b(?P<letters>[A-Z]{{2,6}}) \({_WORDS}\)")
_SMALL: Final = frozenset({"of", "and", "the", "for", "in", "on", "to"})
_SHORTEST: Final = 3
"""Letters of a word: fewer may be a variable."""


def in_one_notation(text: str) -> str:
    """``July 20, 1969`` and ``20th of July 1969`` -> ``20 July 1969``; ``3 p.m.`` -> ``15:00``, and ``9 am``
    -> ``9:00am``, for nine may be in the evening; ``37 °C`` -> ``37 degrees Celsius``; ``€5`` -> ``5
    euros``."""
    if _DIGIT.search(text) is None or _OF_NOTATION.search(text) is not None:
        return text
    text = _MONTH_FIRST.sub(lambda date: _dated(date[2], date[1], date[3]), text)
    text = _DAY_FIRST.sub(lambda date: _dated(date[1], date[2], date[3]), text)
    text = _HOUR.sub(lambda hour: _timed(int(hour[1]), hour[2] or "00", hour[3].lower()), text)
    text = _DEGREES.sub(lambda unit: " degrees Celsius" if unit[1] == "C" else " degrees Fahrenheit", text)
    if text.count("€") == 1:
        text = _EURO.sub(lambda sum_: f"{sum_[1] or sum_[2]} euros", text)
    return _EUROS.sub(" euros", text)


def _dated(day: str, month: str, year: str | None) -> str:
    return f"{int(day)} {month} {year}" if year else f"{int(day)} {month}"


def _timed(hour: int, minute: str, half: str) -> str:
    return f"{hour + 12}:{minute}" if half == "p" else f"{hour}:{minute}am"


def without_abbreviation(text: str) -> str:
    """``value added tax (VAT)`` and ``VAT (value added tax)`` -> ``value added tax``: the letters are the
    first ones of the words, so both name one thing."""
    if text.count("(") != 1 or _OF_NOTATION.search(text) or _OF_LETTERS.search(text):
        return text
    return _SHORT_LAST.sub(_long_form, _SHORT_FIRST.sub(_long_form, text))


def _long_form(found: re.Match[str]) -> str:
    """What was found, or its words alone if the letters begin them."""
    named, letters = found["words"].replace("-", " ").split(), found["letters"]
    stands_for = [word for word in named if word not in _SMALL][-len(letters) :]
    if any(len(word) < _SHORTEST for word in stands_for):
        return found[0]
    if found.string.count(letters) > 1:  # VAT (value added tax) or VAT
        return found[0]
    begins = "".join(word[0].upper() for word in stands_for) == letters
    is_all = found[0].endswith(f"({letters})") or len(stands_for) == len(named) - sum(
        word in _SMALL for word in named
    )
    return found["words"] if begins and is_all else found[0]

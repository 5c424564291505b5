"""Spellings and words of English that stand for one another: closed lists, in ``tables``.

A pair is there only if no question could mean something else with the other one in its place, or if that
other question would make no sense.
"""

from typing import Final

from .wordlists import stored

CONTRACTIONS: Final = stored("contractions")

AGREEMENT: Final = {"does": "do", "are": "is", "were": "was", "has": "have"}
"""Which of the two stands there follows from the subject, and the subject is compared."""

UNITS: Final = stored("units")
"""Short forms count only after a number, and as they are written: a gram and a pound are other things too."""

NOT_ONLY_UNITS: Final = frozenset({"seconds", "minute", "hour", "yard", "ounce"})

_TENS: Final = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_ONES: Final = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
COMPOUND_NUMBERS: Final = {
    f"{tens}-{ones}": str(10 * by_ten + by_one)
    for by_ten, tens in enumerate(_TENS, 2)
    for by_one, ones in enumerate(_ONES, 1)
}
"""With their hyphen: ``twenty five-year-olds`` are twenty."""

NUMBERS: Final = stored("numbers") | COMPOUND_NUMBERS
"""``one`` is a pronoun too, and stays."""

SCALES: Final = {"hundred": 100, "thousand": 1_000, "million": 1_000_000, "billion": 1_000_000_000}

SPELLINGS: Final = stored("spellings")
SYNONYMS: Final = stored("synonyms")

CAPITALS: Final = {
    phrase.strip(): letters
    for letters, phrases in stored("capitals").items()
    for phrase in phrases.split(",")
}
"""What is read so only in capitals: in small letters they are words, or other abbreviations."""

PHRASES: Final = stored("abbreviations") | stored("turns") | stored("light_verbs") | CAPITALS
"""Written without their articles when they are matched; a light verb with its noun is the noun's verb."""

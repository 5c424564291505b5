"""Which questions are English: the other lists here say nothing about another language."""

from collections.abc import Sequence
from typing import Final

from .lexicon import AUXILIARIES, FOREIGN, IMPERATIVES, WH_WORDS
from .tokens import Token
from .wordlists import words

_ENGLISH: Final = words(
    """
    the of how what which who why when where is are does did should could would my your and with from by about
    """
)
"""Function words that none of the languages of ``FOREIGN`` has too, or not so many."""

_HEADS: Final = (WH_WORDS | AUXILIARIES | IMPERATIVES | {"so", "i", "my"}) - {"was"}
_SOMETIMES_ENGLISH: Final = words("um son per con")


def is_foreign(tokens: Sequence[Token]) -> bool:
    """Not plainly English. ``Le Guin`` and ``São Paulo`` alone make no other language of a question that
    begins in English and goes on in it."""
    places = [
        place for place, token in enumerate(tokens) if token.text in FOREIGN or not token.text.isascii()
    ]
    if not places:
        return False
    num_needed = 1 if all(place and _begins_big(tokens[place]) for place in places) else 2
    if tokens[0].text not in _HEADS or len({token.text for token in tokens} & _ENGLISH) < num_needed:
        return True
    return not all(_may_be_english(tokens, place) for place in places)


def _may_be_english(tokens: Sequence[Token], place: int) -> bool:
    """A word of a name, or one that English has too."""
    if tokens[place].text in _SOMETIMES_ENGLISH:
        return True
    if place and _begins_big(tokens[place]):
        return True
    return 0 < place < len(tokens) - 1 and _begins_big(tokens[place - 1]) and _begins_big(tokens[place + 1])


def _begins_big(token: Token) -> bool:
    return token.raw[:1].isupper() and not (token.raw.isupper() and len(token.raw) > 1)

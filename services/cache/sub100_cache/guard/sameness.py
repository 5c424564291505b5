"""Whether two canonical questions are one: word by word, in order, or by a licence named here."""

from collections.abc import Sequence
from typing import Final

from . import lexicon
from .frames import Question
from .kinds import Kinds, may_lack_the
from .tokens import Token
from .verbs import is_past, is_third_person, stands_for
from .wordlists import words

_CONNECTIVES: Final = (lexicon.CLAUSE_OPENERS | {"and", "or", "but"}) - {"to"}
_ADVERBS: Final = words(
    """
    everyone everybody everything anyone anybody most many both few people to if that all every each any
    some no only always ever never often and or but even still also
    """
)
_MOVABLE: Final = lexicon.AUXILIARIES - {"can", "could", "may", "must", "should"}
"""Behind the others ``not`` may say what is allowed to be left: ``can I not wear a helmet``."""


def is_same(one: Question, other: Question) -> bool:
    """Symmetric."""
    left, right = _without_commas(one), _without_commas(other)
    if one.names_wording != other.names_wording:
        return False
    if left is None or right is None or left[1] != right[1]:
        return False
    if one.is_indirect != other.is_indirect:
        direct, indirect = (right[0], left[0]) if one.is_indirect else (left[0], right[0])
        if _is_indirect_form(direct, indirect):
            return True
    return _all_match(one, other, left[0], right[0]) or _has_not_moved(left[0], right[0])


def _without_commas(question: Question) -> tuple[tuple[Token, ...], tuple[int, ...]] | None:
    """The words, and before which of them a clause ends; a comma before a connective says nothing."""
    kept: list[Token] = []
    breaks: list[int] = []
    tokens = question.tokens
    while tokens and tokens[-1].text == ",":
        tokens = tokens[:-1]
    for position, token in enumerate(tokens):
        if token.text != ",":
            kept.append(token)
        elif len(kept) == 1 or tokens[position + 1].text not in _CONNECTIVES:
            breaks.append(len(kept))
    return (tuple(kept), tuple(breaks)) if kept else None


def _all_match(one: Question, other: Question, left: Sequence[Token], right: Sequence[Token]) -> bool:
    if len(left) != len(right):
        return False
    kinds: Kinds | None = None
    for place, (a, b) in enumerate(zip(left, right, strict=True)):
        if _match(a, b):
            continue
        kinds = kinds or Kinds(left, right)
        if not one.names_wording and (kinds.may_differ(place) or may_lack_the(left, right, place)):
            continue
        if one.verb == place and stands_for(a.text, b.text):
            continue
        if other.verb == place and stands_for(b.text, a.text):
            continue
        return False
    return True


def _match(a: Token, b: Token) -> bool:
    return a.text == b.text and a.article == b.article


def _is_indirect_form(direct: Sequence[Token], indirect: Sequence[Token]) -> bool:
    """``why do volcanoes erupt`` against ``why volcanoes erupt``, ``where is X`` against ``where X is``."""
    places = [place for place, token in enumerate(direct[:5]) if token.text in lexicon.AUXILIARIES]
    if not places:
        return False
    place = places[0]
    auxiliary = direct[place].text
    rest = [*direct[:place], *direct[place + 1 :]]
    if auxiliary in ("do", "did"):
        form = is_third_person if auxiliary == "do" else is_past
        return _match_but(rest, indirect, form, is_needed=auxiliary == "did")
    for moved in range(place, len(indirect)):
        if indirect[moved].text == auxiliary:
            left = [*indirect[:moved], *indirect[moved + 1 :]]
            if len(left) == len(rest) and all(_match(a, b) for a, b in zip(rest, left, strict=True)):
                return True
    return False


def _match_but(base: Sequence[Token], formed: Sequence[Token], form: object, *, is_needed: bool) -> bool:
    """All match but one verb, which stands in its ``form`` on the right."""
    if len(base) != len(formed):
        return False
    others = [(a.text, b.text) for a, b in zip(base, formed, strict=True) if not _match(a, b)]
    if not others:
        return not is_needed
    return len(others) == 1 and callable(form) and bool(form(*others[0]))


def _has_not_moved(left: Sequence[Token], right: Sequence[Token]) -> bool:
    """``is not glass a liquid``, ``is glass not a liquid``: past the subject, and past nothing else."""
    a, b = _texts(left), _texts(right)
    if len(a) != len(b) or a.count("not") != 1 or b.count("not") != 1:
        return False
    first, last = sorted((a.index("not"), b.index("not")))
    early = a if a.index("not") == first else b
    if first == last or not 1 <= first <= 3 or last - first > 4 or early[first - 1] not in _MOVABLE:
        return False
    if set(early[first + 1 : last + 1]) & _ADVERBS:
        return False
    rests = [[token for token in tokens if token.text != "not"] for tokens in (left, right)]
    return all(_match(x, y) for x, y in zip(*rests, strict=True))


def _texts(tokens: Sequence[Token]) -> tuple[str, ...]:
    return tuple([token.text for token in tokens])

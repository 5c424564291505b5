"""The names of refusals: which kind of difference was seen first. A bounded set, for spans and the judge."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from . import lexicon
from .tokens import Token
from .wordlists import words

_KINDS: Final = {
    "negation": words(
        """
    not no never none nobody nothing neither nor without unable hardly non avoid stop
    """
    ),
    "scope": words(
        """
    except only unless but besides excluding including if also even just instead other
    """
    ),
    "quantifier": words("all every each any some few many most several both either half more less"),
    "comparative": words("best worst least most better worse bigger smaller than as"),
    "question": lexicon.WH_WORDS,
    "modality": lexicon.AUXILIARIES,
    "relation": words(
        """
    in on at by for with from to under during after before since until of over into between against
    """
    ),
}
RULES: Final = frozenset(
    {*_KINDS, "number", "order", "name", "word", "code", "language", "mood", "length", "empty"}
)


def rule_of(asked: Sequence[Token], stored: Sequence[Token]) -> str:
    left, right = (Counter(token.text for token in tokens) for tokens in (asked, stored))
    differing = set((left - right) + (right - left)) - {","}
    if not differing:
        return "order"
    if any(text[:1].isdigit() for text in differing):
        return "number"
    for rule, kind in _KINDS.items():
        if differing & kind:
            return rule
    capitals = {token.text for token in (*asked[1:], *stored[1:]) if token.raw[:1].isupper()}
    return "name" if differing & capitals else "word"

"""Whether an answer to one question answers another: pure, and deny by default.

Nothing is taken for the same because nothing looks different. Two questions are one only if every word of
both is accounted for: by the same word in the same place, or by a licence on a closed list (``lexicon``,
``verbs``, ``courtesy``, ``frames``, ``sameness``). So a number, unit, name, negation, comparative or scope
word that the lists have never heard of refuses like any other word.
"""

from typing import Final

from .canonical import canonical
from .courtesy import without_courtesy
from .frames import question, without_request
from .lexicon import AUXILIARIES, CASE_MATTERS_ABROAD, IMPERATIVES, WH_WORDS
from .rules import rule_of
from .sameness import is_same
from .tokens import Token, is_foreign, looks_like_code, plain, split
from .wordlists import words

MAX_CHARS: Final = 2_000
WORDING: Final = 2
_WANTS: Final = words("i difference steps fast best walk guide meaning definition price cost")


def refusal(asked: str, stored: str) -> str:
    """Empty if an answer to ``stored`` answers ``asked``; otherwise the rule that refused (``rules``)."""
    if len(asked) > MAX_CHARS or len(stored) > MAX_CHARS:
        return "length"
    one, other = plain(asked), plain(stored)
    if looks_like_code(one) or looks_like_code(other):
        return "" if one == other else "code"
    left, right = split(one), split(other)
    if not left or not right:
        return "empty"
    if is_foreign(left) or is_foreign(right):
        return "" if _is_same_abroad(without_courtesy(left), without_courtesy(right)) else "language"
    a, b = canonical(left), canonical(right)
    if not a or not b:
        return "empty"
    if one.endswith("?") != other.endswith("?") and not (_asks(a) and _asks(b)):
        return "mood"
    if is_same(question(a), question(b)):
        return ""
    return rule_of(a, b)


def wording(text: str) -> str:
    """What the embedder reads: the question without courtesies, in one spelling, in its own order.

    A change here makes other vectors: ``WORDING`` rises with it."""
    tokens = split(one := plain(text))
    if looks_like_code(one):
        return one
    kept = without_courtesy(tokens) if is_foreign(tokens) else without_request(canonical(tokens))
    return " ".join(f"{token.article} {token.text}" if token.article else token.text for token in kept) or one


def _is_same_abroad(left: list[Token], right: list[Token]) -> bool:
    """Word for word; capitals may be missing where one side has none at all and no pronoun hangs on them."""
    if [token.text for token in left] != [token.text for token in right]:
        return False
    if [token.raw for token in left[1:]] == [token.raw for token in right[1:]]:
        return True
    has_none = any(all(token.raw == token.text for token in tokens) for tokens in (left, right))
    return has_none and not any(token.text in CASE_MATTERS_ABROAD for token in left)


def _asks(tokens: list[Token]) -> bool:
    """It asks without its question mark too."""
    return tokens[0].text in (WH_WORDS | AUXILIARIES | IMPERATIVES) or tokens[0].text in _WANTS

"""Whether an answer to one question answers another: pure, and deny by default.

Nothing is taken for the same because nothing looks different. Two questions are one only if every word of
both is accounted for: by the same word in the same place, or by a licence on a closed list (``lexicon``,
``verbs``, ``courtesy``, ``frames``, ``sameness``). So a number, unit, name, negation, comparative or scope
word that the lists have never heard of refuses like any other word.
"""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from sub100_shared.wording import speaks_of_wording, works_on_wording

from .abroad import canonical_abroad, is_same_abroad
from .canonical import canonical
from .case import differs_in_case
from .courtesy import without_courtesy
from .frames import Question
from .frames import question as asked_in
from .language import is_foreign
from .lexicon import AUXILIARIES, IMPERATIVES, WH_WORDS, WORD_TALK
from .notation import in_one_notation, without_abbreviation
from .rules import rule_of
from .sameness import is_same
from .tokens import (
    Token,
    has_grouped_number,
    has_quotation,
    is_contracted,
    is_hyphenated,
    looks_like_code,
    plain,
    split,
    written,
)
from .wordlists import words

MAX_CHARS: Final = 2_000
WORDING: Final = 20
_ASKING: Final = (WH_WORDS | AUXILIARIES | IMPERATIVES) | words(
    """
    i difference steps fast best walk guide meaning definition price cost tips instructions compare symptoms
    side benefits causes advantages disadvantages risks ingredients capital population procedure any wondering
    """
)


class Reading(msgspec.Struct, frozen=True, gc=False):
    """One question as the guard compares it. ``tokens`` are those that are compared: canonical in English, as
    written but for courtesies in another language, none for code and for what is too long."""

    text: str
    kind: Literal["long", "code", "foreign", "english"]
    tokens: tuple[Token, ...] = ()
    asked: Question | None = None
    """In English: the question in the form that is compared."""

    @property
    def wording(self) -> str:
        """What the embedder reads: the question without courtesies, in one spelling, asked in one way.

        A change here makes other vectors: ``WORDING`` rises with it."""
        kept = self.asked.tokens if self.asked is not None else self.tokens
        return " ".join(token.spoken for token in kept) or self.text


def read(question: str) -> Reading:
    """The costly half of a comparison: whoever compares one question with several reads it once."""
    text = written(question)
    if len(question) > MAX_CHARS:
        return Reading(text, "long")
    as_asked = text
    names_wording = speaks_of_wording(text)
    if not names_wording:
        text = without_abbreviation(in_one_notation(text))
    if looks_like_code(text) or (names_wording and works_on_wording(text)):
        return Reading(as_asked, "code")
    text = plain(text)
    tokens = split(text)
    has_foreign = is_foreign(tokens)
    names_wording = names_wording or has_quotation(text)
    is_of_words = names_wording or any(token.text in WORD_TALK for token in tokens)
    if has_grouped_number(text) and (has_foreign or is_of_words):
        return Reading(as_asked, "code")
    if (names_wording and is_contracted(text)) or (is_of_words and is_hyphenated(text)):
        return Reading(as_asked, "code")
    if has_foreign:
        return Reading(text, "foreign", canonical_abroad(without_courtesy(tokens)))
    kept = tuple(canonical(tokens, names_wording=names_wording))
    return Reading(text, "english", kept, asked_in(kept, names_wording=names_wording) if kept else None)


def refusal(asked: Reading, stored: Reading) -> str:
    """Empty if an answer to ``stored`` answers ``asked``; otherwise the rule that refused (``rules``)."""
    kinds = {asked.kind, stored.kind}
    if "long" in kinds:
        return "length"
    if "code" in kinds:
        return "" if asked.text == stored.text else "code"
    a, b, one, other = asked.tokens, stored.tokens, asked.asked, stored.asked
    if not a or not b:
        return "empty"
    if "foreign" in kinds:
        return "" if is_same_abroad(_as_written(asked), _as_written(stored)) else "language"
    if asked.text.endswith("?") != stored.text.endswith("?") and not (_asks(asked) and _asks(stored)):
        return "mood"
    if one is None or other is None or not is_same(one, other):
        return rule_of(a, b)
    return "name" if differs_in_case(a, b, may_be_careless=not one.names_wording) else ""


def _as_written(reading: Reading) -> Sequence[Token]:
    """A greeting alone may be what is foreign about one of the two."""
    if reading.kind == "foreign":
        return reading.tokens
    return canonical_abroad(without_courtesy(split(reading.text)))


def _asks(reading: Reading) -> bool:
    """It asks without its question mark too."""
    first = reading.tokens[0].text
    is_question = reading.asked is not None and reading.asked.tokens[0].text in WH_WORDS
    return first in _ASKING or is_question

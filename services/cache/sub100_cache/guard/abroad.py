"""Questions in other languages than English: word for word, but for how somebody asks to be told, and
the small numbers."""

from collections.abc import Sequence
from typing import Final

from .courtesy import TALK_ABROAD
from .lexicon import CASE_MATTERS, CASE_MATTERS_ABROAD, WORD_TALK
from .tokens import Token
from .wordlists import by_first_word, stored, words

_NUMBERS: Final = stored("numbers_abroad")
"""Of German, French and Spanish: whoever writes a digit in the place of one of them means no other word."""

_ASKING: Final = by_first_word(
    tuple(row.split())
    for row in """
me podrías decir
me puedes decir
me podría decir
me puede decir
podrías decirme
puedes decirme
podría decirme
puede decirme
quisiera saber
quiero saber
me gustaría saber
sabes
peux tu me dire
pouvez vous me dire
pourrais tu me dire
pourriez vous me dire
j'aimerais savoir
je voudrais savoir
je veux savoir
kannst du mir sagen
können sie mir sagen
könntest du mir sagen
könnten sie mir sagen
ich möchte wissen
ich würde gerne wissen
""".strip().splitlines()
)
_PLEASE: Final = (("por", "favor"), ("s'il", "te", "plaît"), ("s'il", "vous", "plaît"), ("bitte",))
_QUESTION_WORDS: Final = words(
    """
    qué quién quiénes cuándo cuánto cuántos cuánta cuántas cómo dónde cuál cuáles comment où quand pourquoi
    combien quel quelle quels quelles qui wer wie wo wann warum was welche welcher welches
    """
)
_BEFORE_ES: Final = words("geht gibt ist war wird läuft")


def canonical_abroad(tokens: Sequence[Token]) -> tuple[Token, ...]:
    """``tokens`` have no courtesies around them."""
    found = _without_asking(list(tokens))
    if {token.text for token in found} & (TALK_ABROAD | WORD_TALK):
        return tuple(tokens)
    return tuple(_word(found, place) for place in range(len(found)))


def is_same_abroad(left: Sequence[Token], right: Sequence[Token]) -> bool:
    """Word for word; capitals may be missing where one side has none at all and no pronoun hangs on them."""
    if [token.text for token in left] != [token.text for token in right]:
        return False
    if [token.raw for token in left[1:]] == [token.raw for token in right[1:]]:
        return True
    has_none = any(all(token.raw == token.text for token in tokens) for tokens in (left, right))
    return has_none and not any(token.text in CASE_MATTERS_ABROAD | CASE_MATTERS for token in left)


def _without_asking(tokens: list[Token]) -> list[Token]:
    """``¿me podrías decir, por favor, cuántos ...``: ``cuántos ...``."""
    texts = tuple(token.text for token in tokens)
    for phrase in _ASKING.get(texts[0], ()) if texts else ():
        if texts[: len(phrase)] != phrase:
            continue
        rest = list(texts[len(phrase) :])
        for polite in _PLEASE:
            if tuple(rest[1 : 1 + len(polite)]) == polite and rest[:1] == [","]:
                rest = rest[1 + len(polite) :]
        if rest[:1] == [","]:
            rest = rest[1:]
        return tokens[-len(rest) :] if len(rest) > 2 and rest[0] in _QUESTION_WORDS else tokens
    return tokens


def _word(tokens: Sequence[Token], place: int) -> Token:
    token = tokens[place]
    number = _NUMBERS.get(token.text)
    if number is not None and token.raw.islower():
        return Token(number, number)
    if token.text == "'s" and place and tokens[place - 1].text in _BEFORE_ES:
        return Token("es", "es")
    return token

"""A question without what does not change it: courtesies, spellings, number words, units, agreement."""

from collections.abc import Sequence
from typing import Final

import msgspec

from . import equivalents, lexicon
from .ambiguous import is_acronym, tells_number
from .case import keeps_case
from .courtesy import without_courtesy
from .tokens import Token
from .wordlists import by_first_word, stored, words


def _resolved(word: str) -> str:
    word = equivalents.AGREEMENT.get(word, word)
    word = equivalents.SPELLINGS.get(word, word)
    return equivalents.SYNONYMS.get(word, word)


_WRITTEN_AS: Final = {
    word: _resolved(word) for word in (*equivalents.AGREEMENT, *equivalents.SPELLINGS, *equivalents.SYNONYMS)
}


def _one_word(word: str) -> str:
    return _WRITTEN_AS.get(word, word)


def _bare(text: str) -> tuple[str, ...]:
    """As the words of a phrase are when it is looked for."""
    return tuple(_one_word(word) for word in text.split() if word not in lexicon.ARTICLES)


_PHRASES: Final = {_bare(left): _bare(right) for left, right in equivalents.PHRASES.items()}
_BEGINNINGS: Final = by_first_word(_PHRASES)
_KEPT_ARTICLE: Final = frozenset({"few", "little", "number", "who", "while", "bit"})
"""Words that mean another thing with an article: ``a few`` are more than ``few``."""

_MENTIONED: Final = lexicon.CLAUSE_OPENERS | lexicon.AUXILIARIES | {"and", "or", "of", ",", "vs", "versus"}
_PARTS: Final = frozenset({"half", "quarter", "many", "third", "not"})
"""Before ``a hundred`` they make another number of it."""

_MASSES: Final = {
    "g": "gram",
    **dict.fromkeys(("lb", "lbs", "pound", "pounds"), "pound-of-weight"),
}
_WEIGHED: Final = words(stored("nouns")["weighed"])
_CAPITALS: Final = frozenset(equivalents.CAPITALS.values())
_SYMBOLS: Final = {"%": "percent"}
_COUNTED: Final = frozenset((*_SYMBOLS, *_MASSES, *equivalents.UNITS, *equivalents.SCALES))
"""What may be written otherwise though no number stands before it."""


def canonical(tokens: Sequence[Token], *, names_wording: bool) -> list[Token]:
    """English ``tokens`` in the form that ``frames`` and ``sameness`` compare."""
    found = without_courtesy(_with_articles(_without_shouting(tokens)), names_wording=names_wording)
    others = frozenset(token.text for token in found)
    if names_wording or others & (lexicon.WORD_TALK | lexicon.TITLED):  # what a couch is called
        return [msgspec.structs.replace(token, text=_spoken_of(token)) for token in found]
    mapped = [_written(token, _word(token, others)) for token in found]
    return _with_phrases(_with_numbers(mapped))


def _with_articles(tokens: Sequence[Token]) -> list[Token]:
    """Articles become a property of the word after them."""
    found: list[Token] = []
    article = ""
    for position, token in enumerate(tokens):
        after = tokens[position + 1].text if position + 1 < len(tokens) else ""
        if token.text in lexicon.ARTICLES:
            before = tokens[position - 1].text if position else ""
            if _is_named(token, before, after, position):
                found.append(token)
            else:
                article = "the" if token.text == "the" else "a"
            continue
        found.append(msgspec.structs.replace(token, article=article) if article else token)
        article = ""
    return found


def _is_named(article: Token, before: str, after: str, position: int) -> bool:
    """It is no mere article: a letter (``vitamin a``), a word spoken of (``a or an``), part of a name (``The
    Hague``), or what makes another word of the next (``a few``)."""
    return (
        not after
        or after in _KEPT_ARTICLE
        or after in _MENTIONED
        or before in lexicon.LETTERED
        or (position > 0 and article.raw.istitle())
    )


def _without_shouting(tokens: Sequence[Token]) -> Sequence[Token]:
    """Where all is in capitals they say nothing of a word."""
    if any(token.raw != token.raw.upper() for token in tokens):
        return tokens
    return [
        msgspec.structs.replace(token, raw=token.text) if token.text not in lexicon.CASE_MATTERS else token
        for token in tokens
    ]


def _spoken_of(token: Token) -> str:
    return equivalents.AGREEMENT.get(token.text, token.text) if token.raw.islower() else token.text


def _word(token: Token, others: frozenset[str]) -> str:
    if token.raw == "US":
        return "u.s"
    if token.raw in _CAPITALS:
        return token.raw
    if token.text in equivalents.AGREEMENT and tells_number(others):
        return token.text
    return token.text if is_acronym(token.text, token.raw) else _one_word(token.text)


def _with_numbers(tokens: list[Token]) -> list[Token]:
    found: list[Token] = []
    before = ""
    for place, token in enumerate(tokens):
        text = equivalents.NUMBERS.get(token.text, token.text)
        follows_number = before[:1].isdigit() and before.replace(".", "").isdigit()
        is_plain = text is token.text and not follows_number and token.raw.islower()
        if is_plain and text not in _COUNTED and token.raw not in _COUNTED:
            found.append(token)
            before = text
            continue
        if follows_number and token.text in ("am", "pm"):
            token = msgspec.structs.replace(token, raw=token.text)
        if token.text in _SYMBOLS:
            text = _SYMBOLS[token.text]
        elif token.raw in _MASSES and _is_weighed(tokens, place, follows_number=follows_number):
            text = _MASSES[token.raw]
        elif token.raw in equivalents.UNITS and (follows_number or _converts(token.raw, before)):
            text = equivalents.UNITS[token.raw]
        elif found and not token.raw.islower() and keeps_case(token.raw, follows_number=follows_number):
            text = token.raw
        elif text in equivalents.SCALES and (before == "one" or before.isdigit()):
            found.pop()
            text = str((1 if before == "one" else int(before)) * equivalents.SCALES[text])
        elif (
            text in equivalents.SCALES
            and token.article == "a"
            and before not in _PARTS
            and not _goes_on(tokens, place)
        ):
            text = str(equivalents.SCALES[text])
            token = msgspec.structs.replace(token, article="")
        found.append(_written(token, text))
        before = text
    return found


def _written(token: Token, text: str) -> Token:
    return token if token.text == text else msgspec.structs.replace(token, text=text)


def _is_weighed(tokens: list[Token], place: int, *, follows_number: bool) -> bool:
    """``500 g of beef``, ``how many lbs of flour``: elsewhere pounds are money, and g is what pilots bear."""
    if place + 2 >= len(tokens) or tokens[place + 1].text != "of":
        return False
    is_counted = follows_number or (place > 0 and tokens[place - 1].text == "many")
    return is_counted and not _WEIGHED.isdisjoint(token.text for token in tokens[place + 2 : place + 5])


def _goes_on(tokens: list[Token], place: int) -> bool:
    """``a hundred and five`` is one number or two."""
    return place + 1 < len(tokens) and tokens[place + 1].text == "and"


def _converts(unit: str, before: str) -> bool:
    """``how many kgs``, ``in cm``; ``in an hour`` is something else, and so is a pain ``in the foot``."""
    return (
        before in ("many", "in", "to")
        and equivalents.UNITS[unit] not in equivalents.NOT_ONLY_UNITS
        and len(unit) > 1
    )


def _with_phrases(tokens: list[Token]) -> list[Token]:
    found: list[Token] = []
    position = 0
    texts = tuple(token.text for token in tokens)
    while position < len(tokens):
        for phrase in _BEGINNINGS.get(texts[position], ()):
            end = position + len(phrase)
            # To have a rest is to rest; to have the rest is not.
            if texts[position:end] == phrase and all(
                token.article != "the" for token in tokens[position + 1 : end]
            ):
                first, *others = _PHRASES[phrase]
                found.append(Token(first, "", tokens[position].article))
                found += [Token(word, "") for word in others]
                position = end
                break
        else:
            found.append(tokens[position])
            position += 1
    return found

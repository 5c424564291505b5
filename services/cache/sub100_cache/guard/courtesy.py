"""Greetings, politeness and small talk around a question: what says nothing about what is asked."""

from typing import Final

from . import lexicon
from .tokens import Token
from .wordlists import words


def _phrases(rows: str) -> tuple[tuple[str, ...], ...]:
    """Longest first."""
    phrases = {tuple(row.split()) for row in rows.strip().splitlines()}
    return tuple(sorted(phrases, key=len, reverse=True))


_LEADING: Final = _phrases("""
hi
hi there
hello
hello there
hey
hey there
howdy
yo
greetings
good morning
good afternoon
good evening
good day
dear assistant
please
pls
plz
kindly
ok
okay
so
well
um
quick question
question
simple question
one question
sorry to bother you
excuse me
sorry
thanks
thank you
bonjour
salut
hola
hallo
guten tag
buenos días
bitte
""")
_TRAILING: Final = _phrases("""
please
pls
plz
kindly
thanks
thank you
thx
cheers
many thanks
thanks lot
thank you very much
thanks in advance
thank you in advance
if you would be so kind
if you do not mind
if you can
por favor
bitte
merci
danke
gracias
""")
_SMALL_TALK: Final = words(
    """
    i am is was have been just quick question questions about this that it but so and my we maybe may be
    stupid silly dumb probably simple random basic out of curiosity curious wondering wondered wonder keep
    forgetting forget bugging me all day for pub quiz googled google searched found nothing useful looked
    everywhere could tried asking asked sorry to bother you bothering hope well doing one thing here
    something there quickly know like would figure talking friend colleague friends they do
    """
)
_MAX_SMALL_TALK: Final = 10
_NEEDED: Final = words(
    """
    curious curiosity wondering wondered question questions bugging forgetting googled searched quiz
    asking
    """
)
"""One of these makes a clause of such words small talk."""

_COURTEOUS: Final = frozenset({"please", "pls", "plz", "kindly", "actually"})
"""Dropped wherever they stand; ``exactly`` only behind a question word: exactly 3 is not 3."""

_BEGINNINGS: Final = lexicon.WH_WORDS | lexicon.AUXILIARIES | lexicon.IMPERATIVES | {","}


def without_courtesy(tokens: list[Token]) -> list[Token]:
    """Articles are gone already."""
    if any(token.text in lexicon.WORD_TALK for token in tokens):
        return _without_start(tokens)
    found: list[Token] = []
    for token in tokens:
        is_filler = token.text == "exactly" and found and found[-1].text in lexicon.WH_WORDS
        if token.text not in _COURTEOUS and not is_filler:
            found.append(token)
    while (shorter := _without_end(_without_start(found))) != found:
        found = shorter
    return found


def _without_start(tokens: list[Token]) -> list[Token]:
    texts = [token.text for token in tokens]
    for phrase in _LEADING:
        # "Hello, what is ..." greets; "Hello world in Python" does not.
        rest = texts[len(phrase) :]
        if tuple(texts[: len(phrase)]) == phrase and len(rest) > 1 and rest[0] in _BEGINNINGS:
            return _trim(tokens[len(phrase) :])
    clause = texts.index(",") if "," in texts else 0
    if 0 < clause <= _MAX_SMALL_TALK and set(texts[:clause]) <= _SMALL_TALK and set(texts[:clause]) & _NEEDED:
        after = _trim(tokens[clause:])
        return after[1:] if after and after[0].text == "but" else after
    return _trim(tokens)


def _without_end(tokens: list[Token]) -> list[Token]:
    texts = [token.text for token in tokens]
    for phrase in _TRAILING:
        if tuple(texts[-len(phrase) :]) == phrase and len(texts) > len(phrase):
            return _trim(tokens[: -len(phrase)])
    return tokens


def _trim(tokens: list[Token]) -> list[Token]:
    start = 0
    while start < len(tokens) and tokens[start].text == ",":
        start += 1
    end = len(tokens)
    while end > start and tokens[end - 1].text == ",":
        end -= 1
    return tokens[start:end]

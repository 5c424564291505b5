"""Questions in another order of words: passives, judgements, conversions."""

from collections.abc import Sequence
from typing import Final

from . import lexicon
from .comparisons import symmetric
from .tokens import Token
from .verbs import may_be_participle
from .wordlists import words

TRANSLATE: Final = "<translate>"
CONVERT: Final = "<convert>"
_LANGUAGES: Final = words(
    """
    english french spanish german italian japanese chinese korean portuguese russian latin arabic hindi thai
    turkish dutch greek polish swedish hebrew vietnamese danish norwegian finnish czech hungarian ukrainian
    """
)
_HANDLED: Final = words(
    """
    pronounced spelled cooked baked boiled fried grilled roasted cleaned washed installed brewed sharpened
    folded peeled sliced chopped marinated seasoned ironed configured
    """
)
"""What whoever asks may do as well as anybody: who judges, dismisses or regards is part of the question."""

_OF_AGENTS: Final = words(
    """
    released produced emitted absorbed caused painted written invented discovered composed directed climbed
    developed founded designed published
    """
)
"""What is built by the river the river did not build; behind these it is who did it."""

_OF_WHOM: Final = _OF_AGENTS | words("built created sung won ruled assassinated coined sculpted defeated")
"""``who was it built by`` asks for nobody who stood there."""

_NO_AGENTS: Final = words(
    """
    hand accident mistake law default now then noon midnight night day size name date order number chance
    river sea lake station park church window fire door road beach ocean shore harbor bridge me us him her
    them you january february march april may june july august september october november december monday
    tuesday wednesday thursday friday saturday sunday christmas easter thanksgiving halloween ramadan year eve
    email mail post
    """
)
"""By one of these may be how, when or where it was done."""

_IN_NAMES: Final = words("of and de van von da")
_OF_THINGS: Final = words("produced emitted absorbed caused")
"""Of these a thing may be what does it, at any time."""

_LONGEST_AGENT: Final = 6
_NORMAL: Final = words("normal okay ok legal illegal safe bad dangerous common weird")
_CONSUMED: Final = words("eat drink consume reheat freeze refreeze microwave")
_WORTH: Final = words("buying visiting watching reading seeing learning")
_NO_THING: Final = words(
    """
    it not that this there and or only just even mostly all any some most many few both every no nothing
    everything anything
    """
)
"""Where one of these stands, or a number, what is judged is no mere thing."""

PRONOUNS: Final = words("i you he she it we they me him her us them this that")
_TELLING: Final = words("give tell name state provide")


def active_form(tokens: tuple[Token, ...]) -> tuple[tuple[Token, ...], int] | None:
    """The active of a passive, and the place of the participle in it, which stands for another form:

    ``when was X founded by Y`` -> ``when did Y found X``; ``how should X be washed`` -> ``how should i wash
    X``;
    ``how is X pronounced`` -> ``how do you pronounce X``;
    ``X was written by who``, ``by who was X written``, ``who was X written by`` -> ``who wrote X``;
    ``was X written by Y`` -> ``did Y write X``."""
    texts = _texts(tokens)
    if len(texts) < 4:
        return None
    if texts[-2:] in (("by", "who"), ("by", "whom")) or (
        texts[0] == "by" and texts[1] in ("who", "whom", "which", "what")
    ):
        return _by_whom(tokens, texts)
    if texts[-1] == "by" and texts[:2] in (("who", "was"), ("what", "was")) and len(texts) > 4:
        thing = tokens[2:-2]
        is_done = texts[-2] in _OF_WHOM and _is_thing(texts[2:-2])
        return ((tokens[0], tokens[-2], *thing), 1) if is_done else None
    if texts[0] in ("is", "was") and texts.count("by") == 1:
        return _was_done_by(tokens, texts)
    if texts[0] == "how" and texts[1] in ("should", "can"):
        return _be_done(tokens, texts, 2)
    if texts[0] in ("how", "when", "where", "why") and texts[1] in ("is", "was"):
        return _done_by(tokens, texts)
    if texts[0] in ("what", "which", "in") and "by" in texts:
        return _which_is_done_by(tokens, texts)
    return None


def as_known(tokens: tuple[Token, ...]) -> tuple[Token, ...] | None:
    """Translations, conversions, comparisons and requests to name a thing, each in one form."""
    texts = _texts(tokens)
    if texts[0] in _TELLING:
        named = tokens[2:] if texts[1:2] == ("me",) else tokens[1:]
        if len(named) > 1 and named[0].article == "the":
            return (Token("what", "what"), Token("is", "is"), *named)
    if texts[:4] == ("what", "would", "be", "good") and tokens[3].article == "a":
        return (tokens[0], Token("is", "is"), *tokens[3:])
    if texts[-1] in _LANGUAGES and len(texts) > 3 and texts[-2] == "in":
        for start in (
            ("how", "do", "you", "say"),
            ("how", "do", "i", "say"),
            ("how", "to", "say"),
        ):
            if texts[: len(start)] == start:
                return (Token(TRANSLATE, ""), *tokens[len(start) : -2], tokens[-1])
    return _conversion(tokens, texts) or _judged(tokens, texts) or symmetric(tokens, texts)


def _judged(tokens: tuple[Token, ...], texts: tuple[str, ...]) -> tuple[Token, ...] | None:
    """``S, is that normal`` -> ``is it normal that S``; ``is X safe to eat`` -> ``is it safe to eat X``;
    ``is X worth buying`` -> ``is it worth buying X``."""
    if (
        texts[-4:-1] == (",", "is", "that")
        and texts[-1] in _NORMAL
        and texts.count(",") == 1
        and len(texts) > 6
    ):
        return (tokens[-3], Token("it", "it"), tokens[-1], tokens[-2], *tokens[:-4])
    if texts[0] == "is" and "worth" in texts[2:-1]:
        worth = texts.index("worth", 2)
        if texts[worth + 1] in _WORTH and _is_thing(texts[1:worth]):
            it = (tokens[0], Token("it", "it"), *tokens[worth : worth + 2])
            return (*it, *tokens[1:worth], *tokens[worth + 2 :])
    if texts[0] != "is" or "safe" not in texts[2:-2]:
        return None
    safe = texts.index("safe", 2)
    thing = texts[1:safe]
    if texts[safe + 1] != "to" or texts[safe + 2] not in _CONSUMED or not _is_thing(thing):
        return None
    head = (tokens[0], Token("it", "it"), *tokens[safe : safe + 3])
    return (*head, *tokens[1:safe], *tokens[safe + 3 :])


def _is_thing(texts: Sequence[str]) -> bool:
    return _NO_THING.isdisjoint(texts) and not any(text[0].isdigit() for text in texts)


def _conversion(tokens: tuple[Token, ...], texts: tuple[str, ...]) -> tuple[Token, ...] | None:
    if len(texts) == 5 and texts[0] == "convert" and texts[1][0].isdigit() and texts[3] in ("to", "into"):
        return (Token(CONVERT, ""), *tokens[1:3], tokens[4])
    if len(texts) == 6 and texts[:2] == ("what", "is") and texts[2][0].isdigit() and texts[4] == "in":
        return (Token(CONVERT, ""), *tokens[2:4], tokens[5])
    if len(texts) == 6 and texts[:2] == ("how", "many") and texts[3] == "is" and texts[4][0].isdigit():
        return (Token(CONVERT, ""), *tokens[4:6], tokens[2])
    return None


def _by_whom(tokens: tuple[Token, ...], texts: tuple[str, ...]) -> tuple[tuple[Token, ...], int] | None:
    """All to the end is the verb's: ``by which company was X first developed``."""
    if texts[0] == "by":
        places = [place for place in range(2, len(texts) - 1) if texts[place] in ("is", "was")]
        if len(places) != 1 or places[0] > 4 or not may_be_participle(texts[-1]):
            return None
        agent, thing, verb = tokens[1 : places[0]], tokens[places[0] + 1 : -1], tokens[-1]
        if len(thing) > 1 and thing[-1].text == "first":
            return ((*agent, thing[-1], verb, *thing[:-1]), len(agent) + 1)
    else:
        places = [place for place in range(1, len(texts) - 3) if texts[place] == "was"]
        if len(places) != 1 or places[0] != len(texts) - 4 or not may_be_participle(texts[-3]):
            return None
        agent, thing, verb = tokens[-1:], tokens[: places[0]], tokens[-3]
    if agent[0].text == "whom":
        agent = (Token("who", "who"), *agent[1:])
    return ((*agent, verb, *thing), len(agent)) if thing else None


def _was_done_by(tokens: tuple[Token, ...], texts: tuple[str, ...]) -> tuple[tuple[Token, ...], int] | None:
    by = texts.index("by")
    thing, agent = tokens[1 : by - 1], tokens[by + 1 :]
    if not thing or not 0 < len(agent) <= _LONGEST_AGENT or texts[by - 1] not in _OF_AGENTS:
        return None
    named = texts[by + 1 :]
    is_known = all(token.raw[:1].isupper() or token.text in _IN_NAMES for token in agent)
    if not is_known and (texts[0] == "was" or texts[by - 1] not in _OF_THINGS):
        return None
    is_agent = _is_thing(named) and lexicon.CLAUSE_OPENERS.isdisjoint(named) and _NO_AGENTS.isdisjoint(named)
    if not is_agent or not _is_thing(texts[1 : by - 1]) or texts[by - 2] == "first":
        return None
    auxiliary = "do" if texts[0] == "is" else "did"
    return (Token(auxiliary, auxiliary), *agent, tokens[by - 1], *thing), 1 + len(agent)


def _be_done(
    tokens: tuple[Token, ...], texts: tuple[str, ...], start: int
) -> tuple[tuple[Token, ...], int] | None:
    be = texts.index("be") if texts.count("be") == 1 else 0
    if be <= start or be + 1 >= len(texts) or texts[be + 1] not in _HANDLED:
        return None
    if texts[start] in PRONOUNS or "by" in texts[be:]:
        return None
    head = (Token("<how-to>", ""),) if texts[:2] == ("how", "can") else (*tokens[:start], Token("i", "i"))
    return (*head, tokens[be + 1], *tokens[start:be], *tokens[be + 2 :]), len(head)


def _which_is_done_by(
    tokens: tuple[Token, ...], texts: tuple[str, ...]
) -> tuple[tuple[Token, ...], int] | None:
    """``what gas is released by plants at night`` -> ``what gas do plants release at night``;
    ``in which year was X first climbed by Y`` -> ``in which year did Y first climb X``."""
    places = [place for place in range(1, 5) if texts[place : place + 1] in (("is",), ("was",))]
    by = texts.index("by")
    if len(places) != 1 or texts.count("by") != 1 or by + 1 >= len(texts) or texts[by - 1] not in _OF_AGENTS:
        return None
    be, done = places[0], by - 1
    end = by + 1
    while end < len(texts) and texts[end] not in lexicon.CLAUSE_OPENERS:
        end += 1
    agent, first = tokens[by + 1 : end], tokens[done - 1 : done] if texts[done - 1] == "first" else ()
    thing = tokens[be + 1 : done - len(first)]
    auxiliary = "do" if texts[be] == "is" else "did"
    if not agent or len(agent) > _LONGEST_AGENT or bool(thing) != (texts[1] == "year" or texts[2] == "year"):
        return None
    asked = tokens[texts[0] == "in" : be]
    head = (*asked, Token(auxiliary, auxiliary), *agent, *first)
    return (*head, tokens[done], *thing, *tokens[end:]), len(head)


def _done_by(tokens: tuple[Token, ...], texts: tuple[str, ...]) -> tuple[tuple[Token, ...], int] | None:
    places = [place for place in range(3, len(texts)) if may_be_participle(texts[place])]
    if len(places) != 1:
        return None
    place = places[0]
    auxiliary = "do" if texts[1] == "is" else "did"
    if texts[place + 1 :][:1] == ("by",) and len(texts) > place + 2 and texts[place] in _OF_AGENTS:
        agent = tokens[place + 2 :]
        active = (tokens[0], Token(auxiliary, auxiliary), *agent, tokens[place], *tokens[2:place])
        return active, 2 + len(agent)
    if place == len(texts) - 1 and texts[:2] == ("how", "is") and texts[place] in _HANDLED:
        you = (tokens[0], Token("do", "do"), Token("you", "you"))
        return (*you, tokens[-1], *tokens[2:-1]), 3
    return None


def _texts(tokens: Sequence[Token]) -> tuple[str, ...]:
    return tuple([token.text for token in tokens])

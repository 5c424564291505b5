"""Words that say the same in one place of a question, and something else in others.

``start`` is ``begin`` before what one does, and not before an engine; a scratch is fixed as it is repaired,
and a date is not. So each is bound here to what stands beside it."""

from collections.abc import Callable, Sequence
from typing import Final

from .lexicon import CLAUSE_OPENERS, TITLED
from .particles import SWITCHED
from .tokens import Token
from .wordlists import words

_NO_GERUNDS: Final = words(
    """
    anything something nothing everything string spring king ring wing thing sling swing building clothing
    painting meeting ceiling wedding evening morning processing training
    """
)
_EVENTS: Final = words(
    """
    war season school semester term ramadan lent winter summer spring autumn festival olympics election match
    concert movie film course century
    """
)
_SIZED: Final = words(
    "city country island lake desert ocean planet continent state mammal volcano stadium airport"
)
_BEHIND: Final = words("in on of by to from") | {""}
"""Behind the last word of what is named; any other may be of its name: ``island nation``."""

_OF_CODE: Final = words(
    """
    c c++ c# java python javascript typescript rust go php swift kotlin sql bash ruby code program function
    statement enum case value variable type string expression
    """
)
"""Beside one of these one switches on what decides between cases."""

_WAYS: Final = (("how", "do", "i"), ("how", "do", "you"), ("how", "can", "i"))
_COLOURS: Final = words("red yellow green amber orange flashing blinking")
"""A car turns on such lights."""

_NEAR: Final = words("planet star galaxy airport")
_BROKEN: Final = words("leak crack dent scratch puncture faucet toilet zipper drywall bicycle laptop")
_STAINS: Final = words("stain stains rust mold mildew limescale wart warts dandruff blackheads lint")
_LEFT_BY: Final = words(
    "coffee tea wine blood ink grass sweat grease juice ketchup mustard chocolate curry tomato"
)
"""Stains of these are no paint."""

_PREPOSITIONS: Final = CLAUSE_OPENERS | words(
    """
    over above behind below beneath under beside between against onto into near around along across through
    off up down of about beyond opposite past
    """
)
_EVERY: Final = {"day": "daily", "week": "weekly", "month": "monthly", "year": "yearly"}
_WORDS: Final = words("begin switch biggest closest quickest fix get every occur take")
_FARTHEST: Final = 4


def in_place(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
    """No words are spoken of in ``tokens``."""
    texts = tuple([token.text for token in tokens])
    if _WORDS.isdisjoint(texts) or not TITLED.isdisjoint(texts):
        return tokens
    for rule in _RULES:
        tokens, texts = rule(tokens, texts)
    return tokens


_Phrased = tuple[tuple[Token, ...], tuple[str, ...]]


def _with(tokens: tuple[Token, ...], start: int, end: int, *put: str) -> _Phrased:
    article = tokens[start].article
    new = [Token(text, "", "" if place else article) for place, text in enumerate(put)]
    changed = (*tokens[:start], *new, *tokens[end:])
    return changed, tuple([token.text for token in changed])


def _started(tokens: tuple[Token, ...], texts: tuple[str, ...]) -> _Phrased:
    """``begin running`` -> ``start running``; ``when does the war begin`` -> ``when does the war start``."""
    if texts.count("begin") != 1:
        return tokens, texts
    place = texts.index("begin")
    after = tokens[place + 1] if place + 1 < len(tokens) else None
    is_event = texts[0] == "when" and texts[1] in ("do", "did", "will") and texts[place - 1] in _EVENTS
    if after is None:
        return _with(tokens, place, place + 1, "start") if is_event else (tokens, texts)
    if texts[:2] == ("what", "do") and texts[-1] == "do":  # what "begin listening" does
        return tokens, texts
    is_done = after.text.endswith("ing") and after.text not in _NO_GERUNDS and after.raw.islower()
    return _with(tokens, place, place + 1, "start") if is_done and not after.article else (tokens, texts)


def _turned(tokens: tuple[Token, ...], texts: tuple[str, ...]) -> _Phrased:
    """``how do I switch on dark mode`` -> ``how do I turn on dark mode``: where one may turn on a light, one
    drives."""
    if (
        texts.count("switch") != 1
        or not _is_own(tokens, texts)
        or not (_OF_CODE | _COLOURS).isdisjoint(texts)
    ):
        return tokens, texts
    place = texts.index("switch")
    if texts[place + 1 : place + 2] not in (("on",), ("off",)) or not _ends_with(SWITCHED, texts, place + 2):
        return tokens, texts
    return _with(tokens, place, place + 1, "turn")


def _is_own(tokens: tuple[Token, ...], texts: tuple[str, ...]) -> bool:
    """Whoever asks wants to switch it, and no bus; at a light one turns."""
    is_light = any(token.text in ("light", "lights") and token.article == "a" for token in tokens)
    return not is_light and (texts[:3] in _WAYS or texts[:2] == ("how", "to"))


def _superlative(tokens: tuple[Token, ...], texts: tuple[str, ...]) -> _Phrased:
    for word, other, things in (
        ("biggest", "largest", _SIZED),
        ("closest", "nearest", _NEAR),
        ("quickest", "fastest", frozenset({"way"})),
    ):
        if texts.count(word) == 1:
            place = texts.index(word)
            thing, behind = (*texts[place + 1 :], "", "")[:2]
            if thing in things and behind in _BEHIND:
                tokens, texts = _with(tokens, place, place + 1, other)
    return tokens, texts


def _mended(tokens: tuple[Token, ...], texts: tuple[str, ...]) -> _Phrased:
    """``fix a leak`` -> ``repair a leak``; ``get rid of rust`` -> ``remove rust``."""
    if texts.count("fix") == 1:
        place = texts.index("fix")
        if texts[-1] in _BROKEN and _ends_with(_BROKEN, texts, place + 1):
            return _with(tokens, place, place + 1, "repair")
    if texts.count("get") == 1 and texts.count("rid") == 1:
        place = texts.index("get")
        if texts[place + 1 : place + 3] == ("rid", "of") and _is_stain(tokens, texts, place + 3):
            return _with(tokens, place, place + 3, "remove")
    return tokens, texts


def _is_stain(tokens: tuple[Token, ...], texts: tuple[str, ...], start: int) -> bool:
    """Molds are for baking, stains for wood: both are thrown away, and not removed from something."""
    if texts[0] == "where" or not _ends_with(_STAINS, texts, start):
        return False
    if texts[start] in _STAINS:
        has_article = bool(tokens[start].article)
        return {"mold": not has_article, "stain": has_article}.get(texts[start], True)
    return texts[start] in _LEFT_BY and texts[start + 1] in ("stain", "stains")


def _ends_with(things: frozenset[str], texts: Sequence[str], start: int) -> bool:
    """What begins at ``start`` ends with one of ``things``: nothing behind it makes another thing of it."""
    for place in range(start, min(len(texts), start + _FARTHEST)):
        if texts[place] in _PREPOSITIONS:
            return False
        if texts[place] in things:
            after = texts[place + 1] if place + 1 < len(texts) else ""
            return after in ("", "from", "after", "before", "when", "if") or (
                after == "in" and things is SWITCHED
            )
    return False


def _at_the_end(tokens: tuple[Token, ...], texts: tuple[str, ...]) -> _Phrased:
    """``... every day`` -> ``... daily``; ``when did it occur`` -> ``when did it happen``."""
    last = len(texts)
    if last < 5:
        return tokens, texts
    if (
        texts[-2] == "every"
        and texts[-1] in _EVERY
        and "not" not in texts
        and texts[-3] != "open"
        and texts[1] != "is"
    ):
        return _with(tokens, last - 2, last, _EVERY[texts[-1]])
    if texts[0] in ("when", "where") and texts[1] in ("do", "did", "will"):
        if texts[-1] == "occur":
            return _with(tokens, last - 1, last, "happen")
        if texts[-2:] == ("take", "place") and not tokens[-1].article:
            return _with(tokens, last - 2, last, "happen")
    return tokens, texts


_RULES: Final[tuple[Callable[[tuple[Token, ...], tuple[str, ...]], _Phrased], ...]] = (
    _started,
    _turned,
    _superlative,
    _mended,
    _at_the_end,
)

"""What stands before a question and means the same behind it: ``in Excel, ...``, ``if it rains, ...``.

Behind the question a clause may belong to another verb than the one that asks, and to a noun, or be what is
known, asked or told (``can I ask my boss if I am late``). So it is moved only behind questions that have one
verb and its object, and that verb takes no clause."""

from collections.abc import Sequence
from typing import Final

from . import lexicon
from .kinds import HANDS_ON
from .tokens import Token
from .verbs import may_be_participle
from .wordlists import words

_PROGRAMS: Final = words(
    """
    excel python java javascript typescript rust ruby c++ c# php sql postgresql mysql html css git bash linux
    windows photoshop powerpoint gmail outlook pandas numpy django kubernetes docker terraform ansible azure
    matlab kotlin haskell latex vim emacs quickbooks jira github gitlab powershell chess minecraft
    """
)
_WAYS: Final = frozenset({("how", "do", "i"), ("how", "can", "i")})
_ASKING: Final = lexicon.WH_WORDS | lexicon.AUXILIARIES
_NAMED_FOR: Final = words("shortcut command keyword function formula syntax operator difference")
"""``what is the`` of them is asked for within a program."""

_CONDITIONS: Final = words("if when whenever once after before while until unless")
_WHAT_TO_DO: Final = frozenset(
    {("what", verb, who, "do") for verb in ("should", "can", "do", "must") for who in ("i", "we")}
    | {("what", "happens"), ("what", "will", "happen"), ("what", "would", "happen")}
)
_MAY_I: Final = (
    ("can", "i"),
    ("should", "i"),
    ("may", "i"),
    ("how", "do", "i"),
    ("how", "can", "i"),
    ("how", "should", "i"),
    ("do", "i", "have", "to"),
    ("do", "i", "need", "to"),
    ("is", "it", "safe", "to"),
    ("is", "it", "okay", "to"),
)
_DONE: Final = HANDS_ON | words(
    "paint eat drink take use drive remove reduce replace deduct wear cut sell buy rent refreeze repair"
)
"""Whoever does one of these does it to something, and to no clause."""

_OF_TIME: Final = words("time times day days moment year years hour night date season age reason way place")
_COMPLEMENT: Final = words(
    "refuses refuse wants want needs need tries try starts start begins begin fails fail has have going"
)
"""Before one of these ``to`` says what is refused, and not what for."""

_NOT_MOVED: Final = words(
    """
    that who which whose whom what where why how not never only just even also still always often or but and
    so because instead besides except it its they them their he him his she her this these those one ones
    """
)
_WEATHER: Final = frozenset({("it", "rains"), ("it", "snows")})
_TOLD_OF: Final = words("i we you he she they it that which who whose")
"""In a clause of what is asked for: ``how do I open files I made`` may end in a program of its own."""

_LONGEST_OBJECT: Final = 4


def with_front_last(tokens: list[Token]) -> tuple[Token, ...]:
    """``In Excel, how do I ...`` -> ``How do I ... in Excel``;
    ``If it rains, can I paint the fence`` -> ``Can I paint the fence if it rains``."""
    texts = tuple([token.text for token in tokens])
    if not texts or texts.count(",") > 1:
        return tuple(tokens)
    if "," in texts:
        comma = texts.index(",")
        front, rest = tokens[:comma], tokens[comma + 1 :]
        if _is_in_program(texts[:comma]) and _is_asked_within(texts[comma + 1 :]):
            return (*rest, *front)
        if texts[0] in _CONDITIONS and _is_condition(texts[:comma], texts[comma + 1 :]):
            return (*rest, *front)
        if rest and rest[0].text in lexicon.CLAUSE_OPENERS and texts[0] in _ASKING:
            return (*front, *rest)
        return tuple(tokens)
    if _is_in_program(texts[:2]) and texts[2:5] in _WAYS and _is_asked_within(texts[2:]):
        return (*tokens[2:], *tokens[:2])
    return tuple(tokens)


def _is_in_program(texts: Sequence[str]) -> bool:
    return len(texts) == 2 and texts[0] == "in" and texts[1] in _PROGRAMS


def _is_asked_within(asked: tuple[str, ...]) -> bool:
    """Nothing in it could be in the program but what is asked."""
    if not _TOLD_OF.isdisjoint(asked[3:]) or any(map(may_be_participle, asked[5:])):
        return False
    if asked[:3] in _WAYS:
        return True
    if asked[:2] == ("what", "do"):
        return len(asked) > 3 and asked[-1] == "do" and "in" not in asked
    return asked[:2] == ("what", "is") and len(asked) > 3 and asked[2] in _NAMED_FOR


def _is_condition(clause: tuple[str, ...], asked: tuple[str, ...]) -> bool:
    if len(clause) < 3 or _num_infinitives(clause) or not _CONDITIONS.isdisjoint(clause[1:]):
        return False
    is_weather = clause[1:] in _WEATHER
    if not is_weather and not _NOT_MOVED.isdisjoint(clause):
        return False
    return asked in _WHAT_TO_DO or (not clause[1].endswith("ing") and _is_of_one_verb(asked))


def _num_infinitives(clause: tuple[str, ...]) -> int:
    return sum(
        text == "to" and clause[place - 1] not in _COMPLEMENT for place, text in enumerate(clause) if place
    )


def _is_of_one_verb(asked: tuple[str, ...]) -> bool:
    """``can I paint the fence``: a verb of doing, what it is done to, and no more."""
    for head in _MAY_I:
        if asked[: len(head)] == head:
            verb, *done_to = asked[len(head) :] or ("",)
            return (
                verb in _DONE
                and 0 < len(done_to) <= _LONGEST_OBJECT
                and _NOT_MOVED.isdisjoint(done_to)
                and not any(text in lexicon.CLAUSE_OPENERS or text.endswith("ing") for text in done_to)
                and done_to[-1] not in _OF_TIME
                and not any(map(may_be_participle, done_to[1:]))  # defects found after ...
            )
    return False

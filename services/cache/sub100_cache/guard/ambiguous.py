"""Words that mean another thing in capitals, or tell number by their verb: no ``equivalents`` hold there."""

from typing import Final

from .wordlists import words

_INVARIANT: Final = words("sheep deer fish series species means aircraft salmon cod swine moose")
"""Whether one or several are meant is told by the verb alone."""

_ABBREVIATED: Final = words("usa u.s.a js k8s tv docs ok ppl usd")
"""Capitals are their own."""

ACRONYMS: Final = words(
    """
    am or in me oh hi pa ma la do and not if sad red can act sat fast ice now pet rice era tips swat
    base laser mit arm dos hip gas nat add mid dip pin van led lot map mad met nap net pal raw sip tag
    tap top via wave ms it us who aids nice gap care hot cold smart star step prism fix bit bus son ban
    cap cart cope dare gem hope jazz leap mask mode nose pace peer pic pile ride safe scope seed shape
    sport tank team vet yam
    """
)
"""In capitals another word than without, whoever writes it."""


def is_acronym(word: str, raw: str) -> bool:
    """Whether ``word`` has no equivalents, for it stands in capitals."""
    return raw.isupper() and len(raw) > 1 and word not in _ABBREVIATED


def tells_number(others: frozenset[str]) -> bool:
    """Whether ``is`` and ``are`` say different things in a question of these words."""
    return bool(_INVARIANT & others)

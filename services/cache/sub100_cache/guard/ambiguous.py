"""Words that mean another thing beside certain words, or in capitals: no ``equivalents`` hold there."""

from typing import Final

from .wordlists import words

_CONTEXTS: Final = {
    "movie movies": """
        camera cameras develop develops developing developed roll rolls window windows thin plastic
        photographic photography negative negatives tint polarizing scan""",
    "benefit benefits drawback drawbacks": """
        employee employees unemployment medicare medicaid veteran veterans disability insurance retirement
        apply social security child housing welfare maternity tax survivor pension claim eligible qualify""",
    "difficult": """
        drive drives disk disks disc water hat hats cider candy copy drug drugs cheese boiled shell cash wood
        rock currency skill skills""",
    "aim objective goal": "soccer football hockey score scored scores post keeper scorer ball net",
    "dad mum mom": "church priest catholic christmas founding holy confession tongue nature board",
    "large": "tech apple bang bird brother ben dipper foot mac oil pharma data",
    "autumn": "rome berlin wall risk from off asleep love empire down over tree",
    "quick quickly rapidly quicker quickest": "food fashion forward lane furious break religious",
    "nation nations": "music club house western garden",
    "shut": "friend friends call up range relative relatives family",
    "kid": "goat goats rock leather gloves",
    "storey": "short love bedtime tell write read ghost",
    "physician": "who strange dre",
}
_MEANS_ELSE: Final = {word: words(context) for names, context in _CONTEXTS.items() for word in names.split()}
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


def is_vetoed(word: str, raw: str, others: frozenset[str]) -> bool:
    """Whether ``word`` keeps its own meaning in a question of these words: in capitals it is an acronym."""
    if raw.isupper() and len(raw) > 1 and word not in _ABBREVIATED:
        return True
    return bool(_MEANS_ELSE.get(word, frozenset()) & others)


def tells_number(others: frozenset[str]) -> bool:
    """Whether ``is`` and ``are`` say different things in a question of these words."""
    return bool(_INVARIANT & others)

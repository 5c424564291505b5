"""Whether two near questions ask the same: pure, deny by default."""

import re

_WORDS = re.compile(r"\w+|[^\w\s]")


def refusal(asked: str, stored: str) -> str:
    """Empty if an answer to ``stored`` answers ``asked``; otherwise the rule that refused."""
    return "" if _WORDS.findall(asked.casefold()) == _WORDS.findall(stored.casefold()) else "words"

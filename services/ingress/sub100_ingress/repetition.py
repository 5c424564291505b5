"""How often an expression repeats itself: what compiling it costs, before an engine tries.

A bounded estimate on the text, the same for regular expressions, EBNF and Lark: counts behind a group may
hold other counts, so they multiply; the others add up.
"""

import re
from typing import Final

MAX_WEIGHT: Final = 1024
"""Beyond it xgrammar 0.2.8 takes seconds to minutes with a vocabulary of 49,000 tokens."""

_COUNT: Final = re.compile(r"(\)?)\{\s*+(\d*+)\s*+(?:,\s*+(\d*+)\s*+)?+\}")
"""Nothing that was read is read again: strangers choose what comes behind a bracket."""
_MAX_DIGITS: Final = 9


def weight(expression: str) -> int:
    """At least 1; more than MAX_WEIGHT for what must be refused."""
    alone, grouped = 0, 1
    for group, least, most in _COUNT.findall(expression):
        if max(len(least), len(most)) > _MAX_DIGITS:
            return MAX_WEIGHT + 1
        count = max(int(least or 0), int(most or 0), 1)
        if group:
            grouped *= count
        else:
            alone += count
        if grouped > MAX_WEIGHT:
            return grouped
    return grouped * max(alone, 1)

"""Whether a question is material: text that is worked on, of which a paraphrase is another input.

Translated, corrected or counted, two ways to ask one thing have two answers. Examples may ask for that with
no word for it (``cat``: ``Katze``, ``dog``:), so behind an assistant's turn no question is taken for similar.
"""

import functools
from collections.abc import Iterator
from typing import Final

from sub100_shared.wording import may_work_on_wording, works_on_wording

from .messages import ChatMessage

MAX_CONTEXT_CHARS: Final = 8_000
"""Longer instructions are not read through on a request's path (0.25 us a character): then it is material."""

_MAX_KNOWN: Final = 64
"""System prompts that come again with each request."""


def may_be_material(messages: tuple[ChatMessage, ...], question: str) -> bool:
    """``question`` is the last part of the last of ``messages``."""
    if any(message.role == "assistant" for message in messages):
        return True
    around = list(_around(messages))
    if sum(map(len, around)) > MAX_CONTEXT_CHARS:
        return True
    return works_on_wording(question) or any(map(_may_work_on_wording, around))


def context_of(messages: tuple[ChatMessage, ...]) -> str:
    """Everything but the question, as a judge reads it."""
    return "\n".join(_around(messages))


def _around(messages: tuple[ChatMessage, ...]) -> Iterator[str]:
    for message in messages[:-1]:
        yield from message.parts
    yield from messages[-1].parts[:-1]


_may_work_on_wording: Final = functools.lru_cache(_MAX_KNOWN)(may_work_on_wording)

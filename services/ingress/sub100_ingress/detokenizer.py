"""Tokens to text, a piece at a time, never splitting a character."""

from collections.abc import Sequence
from typing import Final

from .tokenizer import ModelTokenizer

_REPLACEMENT: Final = "�"
_MAX_PENDING: Final = 8
"""Tokens that one character may span (four bytes, plus joins) before they count as invalid."""


class Detokenizer:
    """One per answer. Joined pieces equal the one-shot decoding of the same ids, but for an incomplete
    character at the very end, which is dropped. Bytes that never become a character come out as
    U+FFFD after at most ``_MAX_PENDING`` tokens: they do not hold back text for ever."""

    def __init__(self, tokenizer: ModelTokenizer) -> None:
        self._tokenizer = tokenizer
        self._stream = tokenizer.decode_stream()
        self._pending: list[int] = []

    def push(self, ids: Sequence[int]) -> str:
        """The text that these tokens complete."""
        if len(ids) == 1:
            return self._step(ids[0])
        return "".join([self._step(token) for token in ids])

    def finish(self) -> str:
        """Nothing: what is pending is an incomplete character. The same in stream and non-stream."""
        self._pending.clear()
        return ""

    def _step(self, token: int) -> str:
        try:
            piece = self._stream.step(token)
        except Exception:  # the library raises a plain Exception ("Invalid prefix encountered")
            return self._restart([*self._pending, token])
        if piece:
            self._pending.clear()
            return piece
        self._pending.append(token)
        if len(self._pending) > _MAX_PENDING:
            return self._restart(self._pending)
        return ""

    def _restart(self, ids: list[int]) -> str:
        """Give up on ids that are no text: emit them as they decode and begin a fresh stream."""
        self._stream = self._tokenizer.decode_stream()
        self._pending = []
        return self._tokenizer.decode(ids)

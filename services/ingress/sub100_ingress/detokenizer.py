"""Token ids to text, piece by piece, never splitting a character.

Byte-level tokenizers (GPT-2's kind: Llama 3, Qwen, SmolLM2 ...) have a table from id to bytes and need
one UTF-8 decoder per answer: exact, under a microsecond a token. The others are decoded from a
moving window of their last ids.
"""

import codecs
from collections.abc import Sequence
from typing import Final, Protocol

from tokenizers import Tokenizer

from .tokenizer import ModelTokenizer

MAX_HELD_TOKENS: Final = 16
"""A character has 4 bytes at most: what is no text after this many tokens never will be."""

_REPLACEMENT: Final = "\ufffd"
_utf8_decoder: Final = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """One answer's text: special tokens and unknown ids are skipped.

    Joined pieces equal what decoding all ids at once gives, less an unfinished last character. Bytes
    that are no text come out as U+FFFD and hold nothing back.
    """

    def __init__(self, tokenizer: ModelTokenizer) -> None:
        table = tokenizer.token_bytes
        self._decoder: _Decoder = _WindowDecoder(tokenizer.backend) if table is None else _ByteDecoder(table)

    def push(self, ids: Sequence[int]) -> str:
        """The characters that these ids complete."""
        return self._decoder.push(ids)

    def finish(self) -> str:
        """What is still held back; an unfinished character is dropped."""
        return self._decoder.finish()


class _Decoder(Protocol):
    def push(self, ids: Sequence[int]) -> str: ...

    def finish(self) -> str: ...


class _ByteDecoder:
    """Holds at most the 3 first bytes of a character."""

    def __init__(self, table: Sequence[bytes]) -> None:
        self._table = table
        self._utf8 = _utf8_decoder("replace")

    def push(self, ids: Sequence[int]) -> str:
        table = self._table
        size = len(table)
        return self._utf8.decode(b"".join([table[i] for i in ids if 0 <= i < size]))

    def finish(self) -> str:
        self._utf8.reset()
        return ""


class _WindowDecoder:
    """Decodes the ids of the last piece with the new ones: what a token looks like depends on its left
    neighbour (leading blanks), on nothing further left."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._context: list[int] = []
        self._held: list[int] = []

    def push(self, ids: Sequence[int]) -> str:
        return "".join([self._push(i) for i in ids])

    def _push(self, token_id: int) -> str:
        self._held.append(token_id)
        text = self._new_text()
        if text.endswith(_REPLACEMENT) and len(self._held) < MAX_HELD_TOKENS:
            return ""
        if text:
            self._context, self._held = self._held, []
        return text

    def finish(self) -> str:
        text = self._new_text().rstrip(_REPLACEMENT) if self._held else ""
        self._held = []
        return text

    def _new_text(self) -> str:
        before: str = self._tokenizer.decode(self._context)
        whole: str = self._tokenizer.decode(self._context + self._held)
        return whole[len(before) :]

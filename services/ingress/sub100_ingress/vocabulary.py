"""What the ids of a byte-level tokenizer stand for."""

import re
from collections.abc import Collection
from typing import Final

from tokenizers import Tokenizer, decoders


def byte_table(tokenizer: Tokenizer, shown: Collection[str] = ()) -> tuple[bytes, ...] | None:
    """The bytes of every id, b"" for gaps and for special tokens but those ``shown``; None if the tokenizer
    is not byte-level.

    Joined and read as UTF-8 they equal ``tokenizer.decode(ids)``, whose rule this is: a token whose
    characters all belong to GPT-2's alphabet is spelled in it, any other is plain text.
    """
    if not isinstance(tokenizer.decoder, decoders.ByteLevel):
        return None
    special = {
        i
        for i, token in tokenizer.get_added_tokens_decoder().items()
        if token.special and token.content not in shown
    }
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    table = [b""] * (max(vocabulary.values(), default=-1) + 1)
    for token, i in vocabulary.items():
        if i not in special:
            table[i] = _spelled(token)
    return tuple(table)


def piece_bytes(token: str) -> bytes:
    """A piece of SentencePiece's kind: ``▁`` is a blank, ``<0xE4>`` a byte."""
    byte = _BYTE_PIECE.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace("▁", " ").encode()


def _spelled(token: str) -> bytes:
    try:
        return bytes([_BYTE_OF[char] for char in token])
    except KeyError:
        return token.encode()


def _alphabet() -> dict[str, int]:
    """GPT-2's characters for bytes: printable Latin-1 stands for itself, the rest for U+0100 onwards
    (openai/gpt-2, ``encoder.bytes_to_unicode``)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


_BYTE_PIECE: Final = re.compile(r"<0x([0-9A-F]{2})>")
_BYTE_OF: Final = _alphabet()

"""Unicode NFC of text from strangers, in linear time."""

import re
import unicodedata
from typing import Final

_MAX_MARKS: Final = 30
"""On one letter; no language has as many (UAX 15, Stream-Safe Text Format)."""

_MARK: Final = r"[^\w\s\0-\x7f]"
_TOO_MANY_MARKS: Final = re.compile(rf"(?<!{_MARK}){_MARK}{{{_MAX_MARKS + 1}}}")
"""Combining marks, and other characters that are neither letters nor blanks: wider than it must be, and
of fixed length."""


def nfc(text: str) -> str:
    """``text`` in NFC; as it is, where more than _MAX_MARKS marks follow one another: bringing n of them into
    order costs Python n * n steps, in which nothing else of the process runs."""
    if text.isascii() or _TOO_MANY_MARKS.search(text):
        return text
    return unicodedata.normalize("NFC", text)

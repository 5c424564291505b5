"""From a text to tokens that can be compared: closed lists decide what may look different and be the same.

What is dropped is named here and in ``lexicon``; everything else stays and must be matched.
"""

import re
from typing import Final

import msgspec

from sub100_shared.nfc import nfc

from . import equivalents

_QUOTES: Final = {0x2019: "'", 0x2018: "'", 0x201C: '"', 0x201D: '"', 0x201E: '"', 0xAB: '"', 0xBB: '"'}
_QUOTATION: Final = re.compile(r'(?<!\S)"[^"]*[^"\s]"(?=[\s.,;:?!]|$)')
_TOKEN: Final = re.compile(
    r'"[^"]*"|'
    r"[A-Za-z](?:\+\+|#)(?!\w)"  # C++, C#
    r"|\.[A-Za-z]\w+"  # .NET
    r"|\d+(?:,\d{3})+(?:\.\d+)?"
    r"|\w+(?:[.'/:-]\w+)*"
    r"|[^\w\s]"
)
_HYPHENATED: Final = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)+|\d+(?:-[^\W\d_]+)+")
_NUMBER_UNIT: Final = re.compile(r"(\d+(?:\.\d+)?)([A-Za-z]{1,4})")
_BREAKS: Final = frozenset(".,?!:;…")
_PUNCTUATION: Final = re.compile(
    r"""
    (?<=[^\W\d_])(?:[,:;](?=\s+\S)|[?!.…]+(?=\s|$))  # behind a word
    |(?<=\d)(?:\?+|[.,])(?=\s+[^\W\d_]|$)            # behind a number: 3! is 6, and 1, 2 a list
    |(?<=\w\s)\?+$
    |(?<=\w)[.'/:-](?=\w)                             # within a word or a number
    |(?<=\d),(?=\d{3}(?!\d))
    |(?<!\S)[¿¡](?=\w)
    |(?<=\d)%(?=\?*$|\s+[A-Za-z]{2})|(?<=\d\s)%(?=\sof\s)
    |(?<=\b[A-Za-z])(?:\+\+|\#)(?!\w)                # C++, C#
    |(?<!\S)\.(?=[A-Za-z]\w)                          # .NET
    |(?<=[a-z]s)'(?=\s[a-z]+)(?![^']*(?:'(?!\w)|(?<!\w)'))  # the dogs' bowl, no quotation
    """,
    re.VERBOSE,
)
"""Marks that are plain punctuation where they stand; any other, or elsewhere, carries meaning."""

_SYMBOL: Final = re.compile(r"[^\w\s]|_")
_LAYOUT: Final = re.compile(r"[^\S ]|  ")
_GROUPED: Final = re.compile(r"\d,\d{3}")
_HYPHEN: Final = re.compile(r"\w-\w")


class Token(msgspec.Struct, frozen=True):
    """``text`` is compared, ``raw`` is as written, ``article`` stood before it and was dropped."""

    text: str
    raw: str
    article: str = ""

    @property
    def spoken(self) -> str:
        """As an embedder reads it; heads of questions are written ``<how-to>``."""
        text = self.text.strip("<>").replace("-", " ") if self.text.startswith("<") else self.text
        return f"{self.article} {text}" if self.article else text


def plain(text: str) -> str:
    """One form of what Unicode writes in several: NFC (10² is not 102), straight quotes, single spaces."""
    return " ".join(nfc(text).translate(_QUOTES).split())


def written(text: str) -> str:
    """As it is, but for the form of its letters and blanks around it."""
    return nfc(text).strip()


def looks_like_code(text: str) -> bool:
    """Whether ``text``, as ``written``, is more than words, quotations and plain punctuation on one line:
    every symbol, bracket and blank may carry its meaning then."""
    straight = text.translate(_QUOTES)
    if _LAYOUT.search(straight):
        return True
    if has_quotation(text):
        straight = _QUOTATION.sub("x", straight)
    return bool(_SYMBOL.search(_PUNCTUATION.sub("", straight)))


def has_quotation(text: str) -> bool:
    """With plain marks: of others some programs make another text."""
    return '"' in text and text.count('"') == text.translate(_QUOTES).count('"')


def has_grouped_number(text: str) -> bool:
    """``1,000``: a thousand in English, one in German, a spelling to whoever asks how it is written."""
    return _GROUPED.search(text) is not None


def is_contracted(text: str) -> bool:
    """Behind its first word: ``what's`` begins a question, and is no part of what is asked about."""
    return any(piece.lower() in equivalents.CONTRACTIONS for piece in text.split()[1:])


def is_hyphenated(text: str) -> bool:
    return _HYPHEN.search(text) is not None


def split(text: str) -> list[Token]:
    """Words in order; ``,`` stands for every mark that separates clauses. ``text`` is plain and no code."""
    tokens: list[Token] = []
    for found in _TOKEN.finditer(text):
        piece = found[0]
        if piece[0].isalnum() or (piece[0] == "." and len(piece) > 1 and piece[1].isalnum()):
            tokens += [Token(word.lower(), word) for word in _words(piece)]
        elif piece[0] == '"':
            tokens.append(Token(piece, piece))
        elif not set(piece) <= _BREAKS:
            if piece not in ("¿", "¡"):
                tokens.append(Token(piece, piece))
        elif tokens and tokens[-1].text != ",":
            tokens.append(Token(",", piece))
    while tokens and tokens[-1].text == ",":
        tokens.pop()
    return tokens


def _words(piece: str) -> list[str]:
    lower = piece.lower()
    if lower in equivalents.CONTRACTIONS:
        return equivalents.CONTRACTIONS[lower].split()
    if piece.isalpha():
        return [piece]
    if _HYPHENATED.fullmatch(piece) and not piece.endswith("ing"):  # a man-eating shark
        parts = piece.split("-")
        if "-".join(parts[:2]).lower() in equivalents.COMPOUND_NUMBERS:
            return ["-".join(parts[:2]), *parts[2:]]
        return [piece] if all(len(part) == 1 for part in parts) else parts  # a-b
    if (found := _NUMBER_UNIT.fullmatch(piece)) and found[2] in equivalents.UNITS:
        return [found[1], found[2]]
    if "," in piece:
        return [piece.replace(",", "")]
    if lower.endswith("'s"):
        return [piece[:-2], "'s"]
    return [piece]

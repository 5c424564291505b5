"""From a text to tokens that can be compared: closed lists decide what may look different and be the same.

What is dropped is named here and in ``lexicon``; everything else stays and must be matched.
"""

import re
import unicodedata
from typing import Final

import msgspec

from . import equivalents, lexicon

_QUOTES: Final = {0x2019: "'", 0x2018: "'", 0x201C: '"', 0x201D: '"', 0x201E: '"', 0xAB: '"', 0xBB: '"'}
_DASHES: Final = "-\u2013\u2014"
_TOKEN: Final = re.compile(
    r"[A-Za-z](?:\+\+|#)(?!\w)"  # C++, C#
    r"|\.[A-Za-z]\w+"  # .NET
    r"|\d+(?:,\d{3})+(?:\.\d+)?"
    r"|\w+(?:[.'&/:@-]\w+)*'?"
    r"|[^\w\s]+"
)
_HYPHENATED: Final = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)+|\d+(?:-[^\W\d_]+)+")
_NUMBER_UNIT: Final = re.compile(r"(\d+(?:\.\d+)?)([A-Za-z]{1,4})")
_BREAKS: Final = frozenset(f".,?!:;…{_DASHES}")
_MARKS: Final = _BREAKS | frozenset("()\"'¿¡")
_CODE: Final = re.compile(r"[`{}\[\]\\=<>|^~$*_@]|//|\(\)|->|::|\w;\s*$|\w\(|(?:^|\s)--?[A-Za-z]|(?:^|\s)/\w")
_LATIN_1: Final = re.compile(r"[^\x00-\x7f]")


class Token(msgspec.Struct, frozen=True):
    """``text`` is compared, ``raw`` is as written, ``article`` stood before it and was dropped."""

    text: str
    raw: str
    article: str = ""


def plain(text: str) -> str:
    """One form of what Unicode writes in several: NFC (10² is not 102), straight quotes, single spaces."""
    return " ".join(unicodedata.normalize("NFC", text).translate(_QUOTES).split())


def looks_like_code(text: str) -> bool:
    return _CODE.search(text) is not None


def split(text: str) -> list[Token]:
    """Words and symbols in order; ``,`` stands for every mark that separates clauses. ``text`` is plain."""
    tokens: list[Token] = []
    for found in _TOKEN.finditer(text):
        piece = found[0]
        if piece[0].isalnum() or (piece[0] in "._" and len(piece) > 1 and piece[1].isalnum()):
            tokens += [Token(word.lower(), word) for word in _words(piece.rstrip("'"))]
        elif not set(piece) <= _MARKS or _stands_alone(text, found):
            tokens.append(Token(piece, piece))
        elif set(piece) & _BREAKS and tokens and tokens[-1].text != ",":
            tokens.append(Token(",", piece))
    while tokens and tokens[-1].text == ",":
        tokens.pop()
    return tokens


def is_foreign(tokens: list[Token]) -> bool:
    """Not plainly English: the lists here say nothing about it."""
    return any(token.text in lexicon.FOREIGN or _LATIN_1.search(token.text) is not None for token in tokens)


def _words(piece: str) -> list[str]:
    if _HYPHENATED.fullmatch(piece) and not piece.endswith("ing"):  # a man-eating shark
        return piece.split("-")
    if piece.lower() in equivalents.CONTRACTIONS:
        return equivalents.CONTRACTIONS[piece.lower()].split()
    if (found := _NUMBER_UNIT.fullmatch(piece)) and found[2] in equivalents.UNITS:
        return [found[1], found[2]]
    if "," in piece:
        return [piece.replace(",", "")]
    if piece.lower().endswith("'s"):
        return [piece[:-2], "'s"]
    return [piece]


def _stands_alone(text: str, mark: re.Match[str]) -> bool:
    """A mark that no word carries is a symbol, between numbers above all; a dash between words is a comma."""
    before, after = text[: mark.start()], text[mark.end() :]
    if not before.endswith(" ") or not after.strip(".?! "):
        return False
    if set(mark[0]) <= frozenset(_DASHES):
        return before.rstrip()[-1:].isdigit() or after[:1] != " "
    return mark[0] not in ("(", '"', "'", "¿", "¡", '("', "('")

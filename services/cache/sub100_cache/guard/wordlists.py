"""How closed lists are written down, words apart by spaces, tables with a row a line; and looked up."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

Phrases = Mapping[str, tuple[tuple[str, ...], ...]]
"""Phrases of one word or more by the first, longest first: a question is compared only with those that it
may begin with."""

_TABLES: Final = Path(__file__).parent / "tables"


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def by_first_word(phrases: Iterable[tuple[str, ...]]) -> Phrases:
    found: dict[str, tuple[tuple[str, ...], ...]] = {}
    for phrase in sorted(phrases, key=len, reverse=True):
        found[phrase[0]] = (*found.get(phrase[0], ()), phrase)
    return found


def table(rows: Iterable[str]) -> dict[str, str]:
    """``a = b`` on each line: ``a`` is written ``b``; several ``a`` apart by commas.

    ``-our = -or : col : s ed`` are ``colour = color``, ``colours = colors`` and ``coloured = colored``."""
    found: dict[str, str] = {}
    for row in rows:
        left, _, right = row.partition(" = ")
        if left.startswith("-"):
            ending, stems, forms = right.split(":")
            for stem in stems.split():
                for form in ("", *forms.split()):
                    found[f"{stem}{left[1:]}{form}"] = f"{stem}{ending.strip()[1:]}{form}"
            continue
        for word in left.split(","):
            found[word.strip()] = right.strip()
    return found


def rows_of(name: str) -> list[str]:
    """The lines of the table of that name beside this module."""
    return (_TABLES / f"{name}.txt").read_text(encoding="utf-8").splitlines()


def stored(name: str) -> dict[str, str]:
    return table(rows_of(name))

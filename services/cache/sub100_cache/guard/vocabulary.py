"""Words of English, as far as the embedder's vocabulary tells them from names."""

import functools
from pathlib import Path
from typing import Final

from .wordlists import words

_FILE: Final = Path(__file__).parent.parent / "embedders" / "vocab.txt"
_ENDINGS: Final = ("s", "es", "ed", "ing", "ly", "ness")
_PLACES: Final = words(
    "france german italian russian hungarian indian european hamburg john richard stephen martin michael"
)
"""Names in spite of their plurals."""


def is_common(word: str) -> bool:
    """It has forms, as nouns, verbs and adjectives have and most names have not."""
    known = _known()
    return word not in _PLACES and any(word + ending in known for ending in _ENDINGS)


def is_known(word: str) -> bool:
    return word in _known()


@functools.cache
def _known() -> frozenset[str]:
    """The whole words of the embedder's vocabulary."""
    lines = _FILE.read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if line.isalpha())

"""Two letters that changed places: the one slip that hardly ever makes another word."""

import functools
from pathlib import Path
from typing import Final

from .tokens import Token

_MIN_LETTERS: Final = 6
_VOCABULARY: Final = Path(__file__).parent.parent / "embedders" / "vocab.txt"


def is_typo(a: Token, b: Token) -> bool:
    """Exactly one of them is a word of the vocabulary; neither is a name, as far as capitals tell."""
    if len(a.text) != len(b.text) or len(a.text) < _MIN_LETTERS or not (a.raw.islower() and b.raw.islower()):
        return False
    differing = [place for place in range(len(a.text)) if a.text[place] != b.text[place]]
    if len(differing) != 2 or differing[1] != differing[0] + 1 or not differing[0]:
        return False
    first = differing[0]
    is_swap = a.text[first : first + 2] == b.text[first : first + 2][::-1]
    return is_swap and is_known(a.text) != is_known(b.text)


def is_known(word: str) -> bool:
    return word in _known()


@functools.cache
def _known() -> frozenset[str]:
    """The whole words of the embedder's vocabulary."""
    lines = _VOCABULARY.read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if line.isalpha())

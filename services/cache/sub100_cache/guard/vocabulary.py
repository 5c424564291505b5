"""Which words of English there are, as far as the embedder's vocabulary tells."""

import functools
from pathlib import Path
from typing import Final

_FILE: Final = Path(__file__).parent.parent / "embedders" / "vocab.txt"


def is_known(word: str) -> bool:
    return word in _known()


@functools.cache
def _known() -> frozenset[str]:
    """The whole words of the embedder's vocabulary."""
    lines = _FILE.read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if line.isalpha())

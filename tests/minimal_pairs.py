"""Pairs of questions that differ in one thing and must never share an answer (field case C02)."""

from pathlib import Path
from typing import Final

import msgspec

_FILE: Final = Path(__file__).parent / "data" / "cache_pairs" / "minimal.jsonl"


class MinimalPair(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``same`` is false for all of them: the form is that of the other labelled pairs, with a language."""

    a: str
    b: str
    same: bool
    kind: str
    lang: str


PAIRS: Final = [
    msgspec.json.decode(line, type=MinimalPair) for line in _FILE.read_text(encoding="utf-8").splitlines()
]

"""pytest imports test modules by their bare names: two of one name cannot run together."""

from collections import Counter
from pathlib import Path


def test_no_two_test_modules_share_a_name() -> None:
    names = Counter(path.name for path in Path(__file__).parents[1].rglob("test_*.py"))
    assert [name for name, number in names.items() if number > 1] == []

"""docs/api.md against the code: what is refused is said there."""

import re
from pathlib import Path

import pytest

from sub100_ingress import unsupported
from sub100_shared import errors

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`([a-z_]+)[`:]", PAGE))


@pytest.mark.parametrize("table", ["_CHAT", "_COMPLETION"])
def test_page_names_every_refused_field(table: str) -> None:
    assert set(getattr(unsupported, table)) <= NAMED


def test_page_names_every_code_of_an_error() -> None:
    codes = {*errors.CLIENT_CODES, *errors.REFUSED_CODES, *errors.EVICTED_CODES}
    assert codes <= NAMED

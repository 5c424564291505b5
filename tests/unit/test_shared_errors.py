"""Codes are API: every one that the code uses is in the table."""

import re
from pathlib import Path

import pytest

from sub100_shared.errors import (
    CLIENT_CODES,
    EVICTED_CODES,
    REFUSED_CODES,
    RETRYABLE_ELSEWHERE,
    http_status,
)

ROOT = Path(__file__).resolve().parents[2]
KNOWN = {**CLIENT_CODES, **REFUSED_CODES, **EVICTED_CODES}
USED = re.compile(
    r"""(?:ClientError|Refused|Evicted|Failed|\.lose|error=|code=|_fail)\(?\s*(?:[\w.]+,\s*)?"([a-z]+_[a-z_]+)\""""
)


def sources() -> list[Path]:
    return [*(ROOT / "services").rglob("*.py"), *(ROOT / "shared").rglob("*.py")]


def test_every_code_in_use_has_a_status() -> None:
    used = {code for path in sources() for code in USED.findall(path.read_text())}
    assert {"slow_client", "worker_lost", "invalid_value"} <= used
    assert used - set(KNOWN) == set()


def test_retryable_codes_are_ours_and_no_client_error_is_retried() -> None:
    assert set(KNOWN) >= RETRYABLE_ELSEWHERE
    assert RETRYABLE_ELSEWHERE.isdisjoint(CLIENT_CODES)


@pytest.mark.parametrize(
    ("code", "status"), [("slow_client", 408), ("queue_full", 503), ("no_such_code", 500)]
)
def test_http_status_of_a_code(code: str, status: int) -> None:
    assert http_status(code) == status

"""How errors leave: their headers."""

from collections.abc import MutableMapping
from typing import Any

import pytest

from sub100_ingress.delivery import send_error
from sub100_shared.errors import ClientError, Evicted, Refused, Sub100Error


@pytest.mark.parametrize(
    ("error", "retry_after"),
    [
        (Refused("no_capacity", "none", retry_after_s=4.4), b"4"),
        (Refused("queue_full", "full", retry_after_s=0.1), b"1"),
        (Evicted("queue_full", "the last worker was full"), b"1"),
        (Evicted("draining", "the last worker was going"), b"1"),
        (Evicted("worker_lost", "lost"), None),
        (ClientError("invalid_value", "wrong"), None),
    ],
    ids=lambda value: getattr(value, "code", None),
)
async def test_error_says_when_to_try_again_where_a_retry_helps(
    error: Sub100Error, retry_after: bytes | None
) -> None:
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    assert await send_error(send, error, "r") == error.status == sent[0]["status"]
    assert dict(sent[0]["headers"]).get(b"retry-after") == retry_after

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from sub100_ingress.http_body import ClientDisconnected, Receive, read_body
from sub100_shared.errors import ClientError


def receiving(*messages: MutableMapping[str, Any]) -> Receive:
    """An ASGI receive that gives these messages, then nothing for ever."""
    queue = list(messages)

    async def receive() -> MutableMapping[str, Any]:
        if not queue:
            await asyncio.Event().wait()
        return queue.pop(0)

    return receive


def any_size(_: int) -> None:
    """There is room."""


def part(body: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


async def test_body_is_joined_from_its_parts() -> None:
    sizes: list[int] = []
    receive = receiving(part(b"ab", more=True), part(b"", more=True), part(b"cd", more=False))
    assert await read_body(receive, None, limit=4, timeout_s=1, take=sizes.append) == b"abcd"
    assert sizes == [2, 0, 2]


@pytest.mark.parametrize("sent", [(), (part(b"{", more=True),)])
async def test_body_that_does_not_come_is_a_408(sent: tuple[dict[str, Any], ...]) -> None:
    with pytest.raises(ClientError) as refused:
        await read_body(receiving(*sent), "100", limit=1000, timeout_s=0.05, take=any_size)
    assert (refused.value.code, refused.value.status) == ("body_timeout", 408)


async def test_body_over_the_limit_is_refused_by_its_length_or_by_its_bytes() -> None:
    with pytest.raises(ClientError, match="larger than 4 bytes"):
        await read_body(receiving(), "5", limit=4, timeout_s=1, take=any_size)
    with pytest.raises(ClientError, match="larger than 4 bytes"):
        await read_body(
            receiving(part(b"abc", more=True), part(b"de", more=True)),
            None,
            limit=4,
            timeout_s=1,
            take=any_size,
        )
    with pytest.raises(ClientError, match="larger than 4 bytes"):
        await read_body(receiving(part(b"abcde", more=False)), None, limit=4, timeout_s=1, take=any_size)


async def test_client_that_leaves_before_its_body_is_complete_is_told_apart() -> None:
    receive = receiving(part(b"ab", more=True), {"type": "http.disconnect"})
    with pytest.raises(ClientDisconnected):
        await read_body(receive, None, limit=9, timeout_s=1, take=any_size)

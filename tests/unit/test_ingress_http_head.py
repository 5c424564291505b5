"""Heads of requests as raw bytes, against a server of the program's own kind."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import uvicorn
from tests.patience import PATIENCE_S

from sub100_ingress import http_head
from sub100_ingress.http_head import MAX_HEAD_BYTES, BoundedHeads
from sub100_shared.ops import EmbeddedServer, listen

GOOD = b"POST /x HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\nhi"


async def echo(scope: Any, receive: Any, send: Any) -> None:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": body[:2]})


@pytest_asyncio.fixture
async def port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    monkeypatch.setattr(http_head, "HEAD_TIMEOUT_S", 0.2)
    listener = listen("127.0.0.1", 0)
    config = uvicorn.Config(echo, http=BoundedHeads, lifespan="off", log_config=None, server_header=False)
    server = EmbeddedServer(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    yield listener.getsockname()[1]
    server.should_exit = True
    await task


async def said(port: int, *parts: bytes) -> bytes:
    """Everything that the server says until it closes; what it does not take is left."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(PATIENCE_S):
            try:
                for part in parts:
                    writer.write(part)
                    await writer.drain()
                return await reader.read()
            except ConnectionError:
                return b"reset"
    finally:
        writer.close()


def error_of(answer: bytes) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head
    found = json.loads(body)
    assert f"x-request-id: {found['request_id']}".encode() in head
    return int(head.split()[1]), found["error"]["code"]


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nx: " + b"a" * (MAX_HEAD_BYTES + 1),
        b"GET / HTTP/1.1\r\n" + b"x: a\r\n" * (MAX_HEAD_BYTES // 5) + b"\r\n",
        b"GET /" + b"a" * (MAX_HEAD_BYTES + 1) + b" HTTP/1.1\r\n",
    ],
    ids=["one without end", "many", "long path"],
)
async def test_head_over_its_limit_is_refused_in_openais_shape(port: int, head: bytes) -> None:
    answer = await said(port, head)
    status, code = error_of(answer)
    assert (status, code) in ((431, "headers_too_large"), (400, "invalid_http"))  # httptools bounds the path


async def test_head_without_end_is_cut_before_it_has_grown(port: int) -> None:
    parts = [b"GET / HTTP/1.1\r\nx: "] + [b"a" * 65_536] * 200
    answer = await said(port, *parts)
    assert answer in (b"", b"reset") or error_of(answer) == (431, "headers_too_large")
    assert (await said(port, GOOD.replace(b"host", b"connection: close\r\nhost"))).endswith(b"hi")


@pytest.mark.parametrize("part", [b"", b"POST /x HT", b"POST /x HTTP/1.1\r\nhost: h\r\n"])
async def test_head_that_does_not_come_is_not_waited_for(port: int, part: bytes) -> None:
    answer = await said(port, part)
    assert answer == b"" if not part else error_of(answer) == (408, "head_timeout")


@pytest.mark.parametrize("bad", [b"\x16\x03\x01", b"GET / HTTP/1.1\r\nx\x1b: y\r\n\r\n"])
async def test_what_is_no_http_is_refused_in_openais_shape(port: int, bad: bytes) -> None:
    assert error_of(await said(port, bad)) == (400, "invalid_http")


async def test_second_request_of_a_connection_is_bounded_too(port: int) -> None:
    answer = await said(port, GOOD, b"POST /y HTTP/1.1\r\n")
    first, _, rest = answer.partition(b"hi")
    assert first.startswith(b"HTTP/1.1 200")
    assert error_of(rest) == (408, "head_timeout")


async def test_head_and_a_large_body_in_one_packet_are_served(port: int) -> None:
    body = b"x" * (3 * MAX_HEAD_BYTES)
    head = f"POST /x HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    assert (await said(port, head + body)).endswith(b"xx")

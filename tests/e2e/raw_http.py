"""HTTP to ingress as bytes: what the official client hides or would not send.

``post`` and ``request`` read a whole answer; ``LiveStream`` reads one event at a time and can leave
politely (``close``) or not (``reset``). Events are parsed strictly: whatever is no comment and no
``data:`` line of JSON or ``[DONE]`` fails the test that reads it.
"""

import contextlib
import http.client
import json
import socket
import struct
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from tests.patience import PATIENCE_S

DONE: Final = "[DONE]"


class Answer:
    """A whole response. ``elapsed_s`` runs from the first byte sent to the last byte read."""

    def __init__(self, status: int, headers: http.client.HTTPMessage, body: bytes, elapsed_s: float) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.elapsed_s = elapsed_s

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error object; checks OpenAI's shape."""
        found: dict[str, Any] = self.json["error"]
        assert set(found) == {"message", "type", "param", "code"}
        assert isinstance(found["message"], str)
        assert found["message"]
        assert found["type"]
        assert found["code"]
        return found

    @property
    def events(self) -> list[Any]:
        """Comments (as ``bytes``), JSON objects and ``[DONE]``, in order."""
        assert self.body.endswith(b"\n\n"), self.body[-100:]
        return [parse_event(block) for block in self.body.split(b"\n\n")[:-1]]

    @property
    def chunks(self) -> list[dict[str, Any]]:
        return [event for event in self.events if isinstance(event, dict)]

    @property
    def text(self) -> str:
        return "".join(deltas(self.chunks))

    @property
    def finish_reasons(self) -> list[str]:
        reasons = [choice["finish_reason"] for chunk in self.chunks for choice in chunk.get("choices", ())]
        return [reason for reason in reasons if reason is not None]


def deltas(chunks: Iterable[Mapping[str, Any]]) -> list[str]:
    """The non-empty pieces of text of chat or completion chunks."""
    choices = [choice for chunk in chunks for choice in chunk.get("choices", ())]
    pieces = [choice["delta"].get("content") if "delta" in choice else choice["text"] for choice in choices]
    return [piece for piece in pieces if piece]


def parse_event(block: bytes) -> Any:
    """One event: a comment as bytes, ``[DONE]``, or a JSON object."""
    if block.startswith(b":"):
        assert b"\n" not in block, block
        return block
    assert block.startswith(b"data: "), block
    assert b"\n" not in block, block
    text = block[len(b"data: ") :].decode("utf-8")  # strict: every line is UTF-8 by itself
    return DONE if text == DONE else json.loads(text)


def request(
    url: str,
    method: str,
    path: str,
    headers: Iterable[tuple[str, str | bytes]] = (),
    body: bytes | None = None,
    timeout_s: float = PATIENCE_S,
    *,
    raw_body: bytes = b"",
) -> Answer:
    """Send the path and the headers exactly as they are; ``raw_body`` comes without a Content-Length."""
    started_at = time.monotonic()
    connection = _send(url, method, path, headers, body, timeout_s, raw_body)
    try:
        response = connection.getresponse()
        data = response.read()
        return Answer(response.status, response.msg, data, time.monotonic() - started_at)
    finally:
        connection.close()


def post(
    url: str,
    body: Mapping[str, Any] | bytes,
    key: str,
    *,
    path: str = "/v1/chat/completions",
    headers: Iterable[tuple[str, str | bytes]] = (),
    timeout_s: float = PATIENCE_S,
) -> Answer:
    """A JSON body with a key."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return request(url, "POST", path, [*_json_headers(key), *headers], data, timeout_s)


class LiveStream:
    """A streamed answer that is still running."""

    def __init__(
        self,
        url: str,
        body: Mapping[str, Any],
        key: str,
        *,
        path: str = "/v1/chat/completions",
        headers: Iterable[tuple[str, str | bytes]] = (),
        timeout_s: float = PATIENCE_S,
    ) -> None:
        self._connection = _send(
            url, "POST", path, [*_json_headers(key), *headers], json.dumps(body).encode(), timeout_s
        )
        self._sock = self._connection.sock
        self._response: http.client.HTTPResponse | None = None

    @property
    def response(self) -> http.client.HTTPResponse:
        """Waits for the head."""
        if self._response is None:
            self._response = self._connection.getresponse()
        return self._response

    def next_event(self) -> Any:
        """The next event, None at the end of the stream."""
        lines: list[bytes] = []
        while line := self.response.readline():
            if line == b"\n":
                return parse_event(b"".join(lines).rstrip(b"\n"))
            lines.append(line)
        assert not lines, lines
        return None

    def next_text(self) -> str:
        """The next piece of text; fails at an error and at the end."""
        while True:
            event = self.next_event()
            assert isinstance(event, (dict, bytes)), event
            if isinstance(event, dict):
                assert "error" not in event, event
                if found := deltas([event]):
                    return found[0]

    def rest(self) -> list[Any]:
        """All events up to the end of the stream."""
        events = []
        while (event := self.next_event()) is not None:
            events.append(event)
        return events

    def close(self) -> None:
        """Leave with a FIN."""
        if self._response is not None:
            self._response.close()
        self._connection.close()
        self._sock.close()

    def reset(self) -> None:
        """Leave with a RST."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def __enter__(self) -> "LiveStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _json_headers(key: str) -> list[tuple[str, str]]:
    return [("Authorization", f"Bearer {key}"), ("Content-Type", "application/json")]


def _send(
    url: str,
    method: str,
    path: str,
    headers: Iterable[tuple[str, str | bytes]],
    body: bytes | None,
    timeout_s: float,
    raw_body: bytes = b"",
) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
    connection._validate_path = lambda _: None  # type: ignore[attr-defined]  # odd paths are the point
    connection.putrequest(method, path, skip_accept_encoding=True)
    for name, value in headers:
        connection.putheader(name, value)
    if body is not None:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders()
    if body or raw_body:
        # Refused before the end of the body: the answer is there to be read.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.send(body or raw_body)
    return connection

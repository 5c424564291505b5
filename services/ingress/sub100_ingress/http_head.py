"""A request's head, before anybody knows whose it is: bounded in bytes and time, refused in OpenAI's shape.

uvicorn bounds neither: whoever can connect could make it buffer without end, or hold connections for ever.
"""

import asyncio
import secrets
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from sub100_shared.errors import ClientError

from .errors_http import error_body

MAX_HEAD_BYTES: Final = 64 * 2**10
HEAD_TIMEOUT_S: Final = 10.0
"""From the connection, or the first byte of a later request on it, to the end of the head."""


class BoundedHeads(HttpToolsProtocol):
    """One connection. A refused one is closed: what follows a bad head cannot be understood."""

    _num_bytes = 0
    _is_in_head = True
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_in_head:
            self._num_bytes += len(data)
        super().data_received(data)
        if self._is_in_head and self._num_bytes > MAX_HEAD_BYTES:
            self._refuse(_too_large())

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if not self._is_in_head:
            self._begin_head()
            self._num_bytes = 1  # how many of this packet are its own is not known

    def on_headers_complete(self) -> None:
        self._end_head()
        num_bytes = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if num_bytes > MAX_HEAD_BYTES:
            self._refuse(_too_large())
        elif not self.transport.is_closing():
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self.transport.is_closing():
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(ClientError("invalid_http", "this is not HTTP/1.1 that can be understood"))

    def _begin_head(self) -> None:
        self._is_in_head = True
        self._num_bytes = 0
        self._timer = asyncio.get_running_loop().call_later(HEAD_TIMEOUT_S, self._on_timeout)

    def _end_head(self) -> None:
        self._is_in_head = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timeout(self) -> None:
        if self._num_bytes:
            self._refuse(
                ClientError("head_timeout", f"the headers did not arrive within {HEAD_TIMEOUT_S:.0f} s")
            )
        else:
            self.transport.close()

    def _refuse(self, error: ClientError) -> None:
        """Answer and close, unless an answer to an earlier request is still on its way: then only close."""
        self._end_head()
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            request_id = f"req-{secrets.token_hex(8)}"
            body = error_body(error, request_id)
            head: list[Any] = [
                STATUS_LINE[error.status],
                b"content-type: application/json\r\n",
                b"x-request-id: " + request_id.encode() + b"\r\n",
                b"content-length: " + str(len(body)).encode() + b"\r\n",
                b"connection: close\r\n\r\n",
            ]
            self.transport.write(b"".join([*head, body]))
        self.transport.close()


def _too_large() -> ClientError:
    return ClientError("headers_too_large", f"the request's head is larger than {MAX_HEAD_BYTES} bytes")

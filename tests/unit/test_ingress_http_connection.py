"""Clients that read late, slowly or never, against a server of the program's own kind."""

import asyncio
import functools
import socket
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import pytest_asyncio
import uvicorn
from tests.patience import PATIENCE_S

from sub100_ingress.delivery import Headers, send_json
from sub100_ingress.http_body import disconnected
from sub100_ingress.http_connection import CONNECTION, Connection
from sub100_shared.ops import EmbeddedServer, listen

BODY: Final = bytes(32 * 2**20)
"""More than the kernel's buffers take."""
REQUEST: Final = b"POST /x HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n"


class WatchedConnection(Connection):
    """Tells of its states."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.is_waiting = asyncio.Event()
        self.is_lost = asyncio.Event()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.is_waiting.set()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.is_lost.set()


class App:
    """Answers a request with BODY and notes what becomes of it."""

    def __init__(self) -> None:
        self.headers: Headers = []
        self.ends_at_once = False
        self.connection: asyncio.Future[WatchedConnection] = asyncio.get_running_loop().create_future()
        self.answered = asyncio.Event()
        self.left = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        watching = asyncio.create_task(self._watch(receive))
        self.connection.set_result(scope[CONNECTION])
        if self.ends_at_once:
            await send({"type": "http.response.start", "status": 200, "headers": self.headers})
            await send({"type": "http.response.body", "body": BODY})
        else:
            await send_json(send, 200, BODY, self.headers)
        self.answered.set()
        await watching

    async def _watch(self, receive: Any) -> None:
        await disconnected(receive)
        if not self.answered.is_set():
            self.left.set()


class Client:
    """Asks once, and reads when it is told to."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.setblocking(False)

    async def ask(self, port: int) -> None:
        await self._loop.sock_connect(self._socket, ("127.0.0.1", port))
        await self._loop.sock_sendall(self._socket, REQUEST)

    async def read(self, num_bytes: int) -> int:
        """How many bytes came until there were so many, or the end."""
        num_read = 0
        while num_read < num_bytes:
            part = await self._loop.sock_recv(self._socket, 65_536)
            if not part:
                break
            num_read += len(part)
        return num_read

    def close(self) -> None:
        self._socket.close()


@pytest_asyncio.fixture
async def app() -> App:
    return App()


@pytest_asyncio.fixture
async def client() -> AsyncIterator[Client]:
    made = Client()
    async with asyncio.timeout(PATIENCE_S):
        yield made
    made.close()


@pytest.fixture
def write_timeout_s() -> float:
    return 2 * PATIENCE_S


@pytest_asyncio.fixture
async def port(app: App, write_timeout_s: float) -> AsyncIterator[int]:
    listener = listen("127.0.0.1", 0)
    connection: Any = functools.partial(WatchedConnection, write_timeout_s=write_timeout_s)
    server = EmbeddedServer(uvicorn.Config(app, http=connection, lifespan="off", log_config=None))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    yield listener.getsockname()[1]
    server.should_exit = True
    await task


async def waiting(app: App) -> WatchedConnection:
    """The connection, once the kernel takes no more of the body."""
    connection = await app.connection
    await connection.is_waiting.wait()
    return connection


async def test_body_is_answered_when_it_has_left_and_not_before(app: App, port: int, client: Client) -> None:
    await client.ask(port)
    connection = await waiting(app)
    assert not app.answered.is_set()
    assert await client.read(len(BODY)) >= len(BODY)
    await app.answered.wait()
    assert connection.transport.get_write_buffer_size() == 0
    assert not connection.was_cut


async def test_client_that_reads_slowly_is_cut_only_when_it_stops(
    app: App, port: int, client: Client
) -> None:
    await client.ask(port)
    connection = await waiting(app)
    for _ in range(3):
        num_waiting = connection.transport.get_write_buffer_size()
        while connection.transport.get_write_buffer_size() == num_waiting:
            await client.read(1)
            await asyncio.sleep(0)
        connection.look()
        assert not connection.was_cut
    connection.look()
    assert connection.was_cut
    await app.left.wait()


@pytest.mark.parametrize("write_timeout_s", [0.1])
async def test_client_that_never_reads_is_cut_and_told(app: App, port: int, client: Client) -> None:
    await client.ask(port)
    connection = await waiting(app)
    await app.left.wait()
    assert connection.was_cut
    assert not connection.server_state.connections
    with pytest.raises(ConnectionResetError):
        await client.read(len(BODY))


@pytest.mark.parametrize("write_timeout_s", [0.1])
@pytest.mark.parametrize("headers", [[], [(b"connection", b"close")]], ids=["kept alive", "closed"])
async def test_what_is_left_of_a_response_when_it_has_ended_is_cut_too(
    app: App, port: int, client: Client, headers: Headers
) -> None:
    app.headers = headers
    app.ends_at_once = True
    await client.ask(port)
    connection = await app.connection
    await connection.is_lost.wait()
    assert app.answered.is_set()
    assert connection.was_cut

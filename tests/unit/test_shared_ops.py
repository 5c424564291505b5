"""The operator's endpoint, over real HTTP on loopback."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import httpx
import pytest
from tests.servers import free_port

from sub100_shared.metric import counter
from sub100_shared.metrics import Metrics
from sub100_shared.ops import OpsServer, Readiness, is_this_host

JOBS = counter("sub100.job.done", "{job}", "Jobs.")


class Program:
    """What the endpoint is about: its state, and whether it was told to drain."""

    def __init__(self) -> None:
        self.is_ready = True
        self.state = "ready"
        self.reason = ""
        self.num_drains = 0
        self.metrics = Metrics()

    def probe(self) -> Readiness:
        return Readiness(self.is_ready, self.state, self.reason)

    def drain(self) -> None:
        self.num_drains += 1


@pytest.fixture
def program() -> Program:
    return Program()


@pytest.fixture
async def client(program: Program) -> AsyncIterator[httpx.AsyncClient]:
    port = free_port()
    server = OpsServer("127.0.0.1", port, program.probe, program.metrics, program.drain)
    await server.start()
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(server.stop)
        yield await stack.enter_async_context(httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}"))


async def test_ops_tells_life_and_readiness_apart(program: Program, client: httpx.AsyncClient) -> None:
    program.is_ready, program.state = False, "draining"

    assert (await client.get("/livez")).status_code == 200
    assert (await client.get("/healthz")).status_code == 200
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()) == (503, {"ready": False, "state": "draining"})

    program.is_ready, program.state = True, "ready"
    assert (await client.get("/readyz")).status_code == 200


async def test_ops_says_why_a_service_that_is_up_is_not_ready(
    program: Program, client: httpx.AsyncClient
) -> None:
    program.is_ready, program.reason = False, "KV transfers fail"

    answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"ready": False, "state": "ready", "reason": "KV transfers fail"}


async def test_ops_serves_metrics_in_prometheus_text_format(
    program: Program, client: httpx.AsyncClient
) -> None:
    program.metrics.counter(JOBS).add(3)
    answer = await client.get("/metrics")

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "\nsub100_job_done_total 3.0\n" in answer.text
    assert "process_resident_memory_bytes" in answer.text


async def test_ops_drains_at_once_and_any_number_of_times(
    program: Program, client: httpx.AsyncClient
) -> None:
    for times in (1, 2):
        answer = await client.post("/drain")
        assert answer.status_code == 202
        assert program.num_drains == times


async def test_ops_drains_on_post_only(program: Program, client: httpx.AsyncClient) -> None:
    assert (await client.get("/drain")).status_code == 405
    assert program.num_drains == 0


@pytest.mark.parametrize(
    "headers", [{"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}]
)
async def test_ops_does_not_drain_for_a_page_in_a_browser(
    program: Program, client: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    assert (await client.post("/drain", headers=headers)).status_code == 403
    assert program.num_drains == 0


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.7", False),
        ("::ffff:10.0.0.7", False),
        ("2001:db8::1", False),
        ("", False),
        ("localhost", False),
    ],
)
def test_ops_knows_this_host_by_its_addresses_alone(host: str, expected: bool) -> None:
    from starlette.requests import Request

    request = Request({"type": "http", "client": (host, 1), "headers": []})
    assert is_this_host(request) is expected


async def test_ops_says_which_address_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = OpsServer("127.0.0.1", port, Program().probe, Metrics(), Program().drain)
        with pytest.raises(OSError, match=f"127.0.0.1:{port}"):
            await server.start()
        await server.stop()


async def test_ops_is_off_without_a_port() -> None:
    server = OpsServer("127.0.0.1", 0, Program().probe, Metrics(), Program().drain)
    before = len(asyncio.all_tasks())
    await server.start()
    assert len(asyncio.all_tasks()) == before
    await server.stop()

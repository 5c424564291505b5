"""An embedder behind OpenAI's API: what is asked, what is believed, and how long it may take."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import numpy as np
import pytest
from tests.patience import PATIENCE_S

from sub100_cache.breaker import MAX_SLOW, Breaker
from sub100_cache.config import CacheConfig
from sub100_cache.embedders.api import EmbedderUnavailable
from sub100_cache.embedders.bounded import SLOW_S, BoundedEmbedder
from sub100_cache.embedders.choice import open_embedder
from sub100_cache.embedders.endpoint import Endpoint
from sub100_shared.config import ConfigError

Answer = Callable[[dict[str, object]], Awaitable[tuple[int, bytes]]]


def vector_reply(*values: float) -> bytes:
    return json.dumps({"object": "list", "data": [{"index": 0, "embedding": list(values)}]}).encode()


@contextlib.asynccontextmanager
async def server(answer: Answer) -> AsyncIterator[tuple[str, list[dict[str, object]]]]:
    """A real HTTP server; what it was asked, headers in lower case among it."""
    asked: list[dict[str, object]] = []

    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                size = int(head.split("content-length: ")[1].split("\r\n")[0])
                body = json.loads(await reader.readexactly(size))
                asked.append({"head": head, **body})
                status, content = await answer(body)
                writer.write(
                    b"HTTP/1.1 %d x\r\ncontent-length: %d\r\n\r\n" % (status, len(content)) + content
                )
                await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1", asked
    finally:
        listening.close()
        await asyncio.wait_for(asyncio.gather(*serving), PATIENCE_S)


def endpoint(url: str, key: str = "") -> Endpoint:
    return Endpoint(url, "text-embed", dimension=3, key=key, max_queued=2)


async def test_endpoint_asks_as_openai_does_and_makes_a_unit_vector() -> None:
    async def answer(body: dict[str, object]) -> tuple[int, bytes]:
        return 200, vector_reply(3.0, 0.0, 4.0)

    async with server(answer) as (url, asked):
        embedder = endpoint(url, key="secret-key")
        vector = np.frombuffer(await embedder.embed("where is rome", 1.0), "<f4")
        await embedder.close()

    assert vector == pytest.approx([0.6, 0.0, 0.8])
    assert asked[0]["input"] == "where is rome"
    assert asked[0]["model"] == "text-embed"
    assert "post /v1/embeddings http/1.1" in str(asked[0]["head"])
    assert "authorization: bearer secret-key" in str(asked[0]["head"])


@pytest.mark.parametrize(
    ("status", "content", "reason"),
    [
        (500, b"{}", "status"),
        (200, b"not json", "shape"),
        (200, vector_reply(1.0, 2.0), "dimension"),
        (200, vector_reply(0.0, 0.0, 0.0), "shape"),
        (200, b'{"data": [{"embedding": [1e999, 0, 0]}]}', "shape"),
        (200, b'{"data": []}', "shape"),
        (200, b" " * (2**20 + 1), "shape"),
    ],
)
async def test_endpoint_believes_no_other_reply(status: int, content: bytes, reason: str) -> None:
    async def answer(body: dict[str, object]) -> tuple[int, bytes]:
        return status, content

    async with server(answer) as (url, _):
        embedder = endpoint(url)
        with pytest.raises(EmbedderUnavailable) as raised:
            await embedder.embed("x", 1.0)
        await embedder.close()

    assert raised.value.reason == reason


async def test_bounded_endpoint_costs_its_time_out_then_nothing_and_comes_back() -> None:
    well = asyncio.Event()
    well.set()

    async def answer(body: dict[str, object]) -> tuple[int, bytes]:
        await well.wait()
        return 200, vector_reply(1.0, 0.0, 0.0)

    async with server(answer) as (url, asked):
        embedder = BoundedEmbedder(endpoint(url), Breaker(SLOW_S), 0)
        await embedder.probe()
        assert len(await embedder.embed("t", "x", 1.0)) == 12
        well.clear()
        for _ in range(MAX_SLOW):
            with pytest.raises(EmbedderUnavailable):
                await embedder.embed("t", "x", SLOW_S)
        num_asked = len(asked)
        with pytest.raises(EmbedderUnavailable):
            await embedder.embed("t", "x", SLOW_S)
        assert len(asked) == num_asked, "an open breaker asks nothing"

        well.set()
        async with asyncio.timeout(PATIENCE_S):
            while embedder.breaker.is_open:
                await embedder.probe()
        assert len(await embedder.embed("t", "x", 1.0)) == 12
        await embedder.close()


async def test_bounded_embedder_keeps_a_vector_for_its_own_tenant_alone() -> None:
    async def answer(body: dict[str, object]) -> tuple[int, bytes]:
        return 200, vector_reply(1.0, 0.0, 0.0)

    async with server(answer) as (url, asked):
        embedder = BoundedEmbedder(endpoint(url), Breaker(SLOW_S), 8)
        await embedder.probe()
        num_probes = len(asked)
        for tenant in ("one", "one", "two", "one"):
            await embedder.embed(tenant, "x", 1.0)
        await embedder.close()

    assert len(asked) - num_probes == 2


def test_choice_names_the_variable_of_an_embedder_it_cannot_open() -> None:
    assert open_embedder(CacheConfig()) is None
    with pytest.raises(ConfigError, match="SUB100_CACHE_EMBEDDER"):
        open_embedder(CacheConfig(embedder="endpoint", embedder_url="ftp://x"))
    with pytest.raises(ConfigError, match="cannot read"):
        open_embedder(CacheConfig(embedder="minilm", embedder_model="/nowhere/model.onnx"))


def test_endpoint_id_differs_for_another_server_model_or_width() -> None:
    ids = {
        Endpoint(url, model, dimension=width, key="", max_queued=1).id
        for url in ("http://a/v1", "http://b/v1")
        for model in ("m", "n")
        for width in (3, 4)
    }

    assert len(ids) == 8

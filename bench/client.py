"""A measuring HTTP client: one raw socket per stream, so that what is measured is the server.

TTFT is taken at the first byte of the first *content* chunk, never at the role chunk or a comment.
"""

import asyncio
import contextlib
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import msgspec


@dataclass(frozen=True)
class Sample:
    """One answer: milliseconds from the first byte sent to the first content byte, and to the end."""

    ttft_ms: float
    total_ms: float
    num_chunks: int
    status: int
    tier: str = ""
    server_timing: str = ""
    request_id: str = ""
    text: str = ""
    chunk_ms: tuple[float, ...] = ()
    """When each piece of content came, from the request's first byte on."""


class StreamClient:
    """One keep-alive connection; ``ask`` streams one chat completion over it."""

    def __init__(self, host: str, port: int, path: str, key: str) -> None:
        self._host = host
        self._port = port
        self._path = path
        self._key = key
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, body: dict[str, Any], timeout_s: float = 60.0) -> Sample:
        """Raises TimeoutError or ConnectionError."""
        async with asyncio.timeout(timeout_s):
            return await self._ask(msgspec.json.encode(body))

    async def _ask(self, payload: bytes) -> Sample:
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._reader, self._writer
        assert reader is not None
        head = (
            f"POST {self._path} HTTP/1.1\r\nhost: {self._host}\r\nauthorization: Bearer {self._key}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(payload)}\r\n\r\n"
        )
        start = perf_counter()
        writer.write(head.encode() + payload)
        status, headers = await _read_head(reader)
        texts: list[str] = []
        times: list[float] = []
        async for line in _lines(reader, headers):
            if line.startswith(b"data: {"):
                text = _content(line[6:])
                if text:
                    texts.append(text)
                    times.append((perf_counter() - start) * 1e3)
        end = perf_counter()
        return Sample(
            ttft_ms=times[0] if times else (end - start) * 1e3,
            total_ms=(end - start) * 1e3,
            num_chunks=len(texts),
            status=status,
            tier=headers.get("x-sub100-tier", ""),
            server_timing=headers.get("server-timing", ""),
            request_id=headers.get("x-request-id", ""),
            text="".join(texts),
            chunk_ms=tuple(times),
        )

    async def close(self) -> None:
        """The next ``ask`` connects anew."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


class _Delta(msgspec.Struct, frozen=True):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = _Delta()
    text: str = ""


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []


_decode = msgspec.json.Decoder(_Chunk).decode


def _content(data: bytes) -> str:
    choices = _decode(data).choices
    return (choices[0].delta.content or choices[0].text) if choices else ""


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    raw = await reader.readuntil(b"\r\n\r\n")
    first, *lines = raw.decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines if ": " in line)
    return int(first.split(" ")[1]), headers


async def _lines(reader: asyncio.StreamReader, headers: dict[str, str]) -> Any:
    """Lines of a chunked or a sized body."""
    pending = b""
    async for data in _blocks(reader, headers):
        pending += data
        *whole, pending = pending.split(b"\n")
        for line in whole:
            yield line
    if pending:
        yield pending


async def _blocks(reader: asyncio.StreamReader, headers: dict[str, str]) -> Any:
    if "content-length" in headers:
        yield await reader.readexactly(int(headers["content-length"]))
        return
    while size := int(await reader.readuntil(b"\r\n"), 16):
        yield (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)


def quantile(values: Sequence[float], q: float) -> float:
    """Nearest-rank quantile; nan for no values."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else float("nan")

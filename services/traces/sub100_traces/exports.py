"""``POST /v1/traces``: OTLP/HTTP as exporters send it (specification 1.x), bounded in size, time and
number."""

import asyncio
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from . import otlp
from .intake import Intake

BODY_TIMEOUT_S: Final = 10.0
MAX_CONCURRENT_EXPORTS: Final = 16
"""Bounds the memory that bodies can take; exporters retry a 503 by themselves."""


class Exports:
    """One handler over one intake."""

    def __init__(self, intake: Intake, max_body_bytes: int) -> None:
        self._intake = intake
        self._max_body_bytes = max_body_bytes
        self._num_exports = 0

    async def take(self, request: Request) -> Response:
        """Spans in. 200 once they are queued; the body says how many were not (never to be retried)."""
        if request.headers.get("content-type", "").partition(";")[0].strip() != otlp.CONTENT_TYPE:
            return refusal(415, f"send {otlp.CONTENT_TYPE}")
        encoding = request.headers.get("content-encoding", "identity")
        if encoding not in ("identity", "gzip"):
            return refusal(415, "send gzip or no content-encoding")
        if self._num_exports >= MAX_CONCURRENT_EXPORTS:
            return refusal(503, "too many exports at once", {"retry-after": "1"})
        self._num_exports += 1
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                body = await self._read_body(request)
            export = await run_in_threadpool(self._parse, body, encoding == "gzip")
        except TimeoutError:
            return refusal(408, "the body took too long", {"connection": "close"})
        except ClientDisconnect:
            return refusal(400, "the body is cut off")
        except otlp.ExportTooLarge as error:
            return refusal(413, str(error), {"connection": "close"})
        except otlp.MalformedExport as error:
            return refusal(400, str(error))
        finally:
            self._num_exports -= 1
        num_dropped = self._intake.offer(export.spans)
        return _response(200, otlp.accepted(*_rejection(export.num_rejected, num_dropped)))

    async def _read_body(self, request: Request) -> bytes:
        """Raises ExportTooLarge as soon as the limit is passed, before the rest has been read."""
        chunks: list[bytes] = []
        num_bytes = 0
        async for chunk in request.stream():
            num_bytes += len(chunk)
            if num_bytes > self._max_body_bytes:
                raise otlp.ExportTooLarge(self._max_body_bytes)
            chunks.append(chunk)
        return b"".join(chunks)

    def _parse(self, body: bytes, is_gzip: bool) -> otlp.Export:
        return otlp.parse(otlp.inflate(body, self._max_body_bytes) if is_gzip else body)


def refusal(status: int, reason: str, headers: dict[str, str] | None = None) -> Response:
    return _response(status, otlp.refused(reason), headers)


def _rejection(num_unusable: int, num_dropped: int) -> tuple[int, str]:
    reasons: list[str] = []
    if num_unusable:
        reasons.append(f"{num_unusable} with an invalid id or time")
    if num_dropped:
        reasons.append(f"{num_dropped} beyond what the queue holds")
    return num_unusable + num_dropped, ", ".join(reasons)


def _response(status: int, body: bytes, headers: dict[str, str] | None = None) -> Response:
    return Response(body, status_code=status, media_type=otlp.CONTENT_TYPE, headers=headers)

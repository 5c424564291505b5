"""The HTTP surface: ``POST /v1/traces`` for exporters, pages for people, ``/api`` for programs.

Access control is the bind address: the default is loopback (see config).
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from . import otlp, waterfall
from .headers import SafeHeaders
from .intake import Intake, IntakeStats
from .pages import Pages
from .spans import Span
from .store import Filter, Store
from .summary import RequestSummary

BODY_TIMEOUT_S: Final = 10.0
MAX_CONCURRENT_EXPORTS: Final = 16
"""Bounds the memory that bodies can take; exporters retry a 503 by themselves."""

DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 1000


class Listing(msgspec.Struct, frozen=True):
    """``GET /api/traces``."""

    requests: list[RequestSummary]
    intake: IntakeStats


class InvalidLimit(ValueError):
    """``limit`` is not a whole number in 1..MAX_LIMIT."""


class TracesApp:
    """Handlers over one store and its intake."""

    def __init__(self, store: Store, intake: Intake, max_body_bytes: int) -> None:
        self._store = store
        self._intake = intake
        self._max_body_bytes = max_body_bytes
        self._pages = Pages()
        self._num_exports = 0
        self.asgi = Starlette(
            routes=[
                Route("/v1/traces", self.export, methods=["POST"]),
                Route("/", self.list_page),
                Route("/trace/{trace_id}", self.trace_page),
                Route("/request/{request_id}", self.request_page),
                Route("/api/traces", self.list_json),
                Route("/api/trace/{trace_id}", self.trace_json),
                Route("/style.css", self.stylesheet),
                Route("/healthz", self.healthz),
                Route("/readyz", self.readyz),
            ],
            middleware=[Middleware(SafeHeaders)],
            exception_handlers={InvalidLimit: _invalid_limit},
        )

    async def export(self, request: Request) -> Response:
        """Spans in. 200 once they are queued; the body says how many were not (never to be retried)."""
        if request.headers.get("content-type", "").partition(";")[0].strip() != otlp.CONTENT_TYPE:
            return _refusal(415, f"send {otlp.CONTENT_TYPE}")
        encoding = request.headers.get("content-encoding", "identity")
        if encoding not in ("identity", "gzip"):
            return _refusal(415, "send gzip or no content-encoding")
        if self._num_exports >= MAX_CONCURRENT_EXPORTS:
            return _refusal(503, "too many exports at once", {"retry-after": "1"})
        self._num_exports += 1
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                body = await self._read_body(request)
            export = await run_in_threadpool(self._parse, body, encoding == "gzip")
        except TimeoutError:
            return _refusal(408, "the body took too long", {"connection": "close"})
        except ClientDisconnect:
            return _refusal(400, "the body is cut off")
        except otlp.ExportTooLarge as error:
            return _refusal(413, str(error), {"connection": "close"})
        except otlp.MalformedExport as error:
            return _refusal(400, str(error))
        finally:
            self._num_exports -= 1
        num_dropped = self._intake.offer(export.spans)
        return _otlp_response(200, otlp.accepted(*_rejection(export.num_rejected, num_dropped)))

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

    async def list_page(self, request: Request) -> Response:
        limit = _limit(request)
        requests, num_traces = await run_in_threadpool(
            lambda: (self._store.page(Filter(), limit).requests, self._store.num_traces())
        )
        return HTMLResponse(self._pages.listing(requests, self._intake.stats, num_traces))

    async def list_json(self, request: Request) -> Response:
        page = await run_in_threadpool(self._store.page, Filter(), _limit(request))
        return _json(Listing(page.requests, self._intake.stats))

    async def trace_page(self, request: Request) -> Response:
        """All spans of a trace, whatever requests it holds."""
        spans = await run_in_threadpool(self._store.spans, request.path_params["trace_id"])
        return await self._waterfall_page(spans, "", "trace")

    async def request_page(self, request: Request) -> Response:
        """One request's own part of its trace."""

        def load() -> tuple[Sequence[Span], str]:
            found = self._store.request(request.path_params["request_id"])
            return (self._store.spans(found.trace_id), found.span_id) if found is not None else ((), "")

        spans, span_id = await run_in_threadpool(load)
        return await self._waterfall_page(spans, span_id, "request")

    async def _waterfall_page(self, spans: Sequence[Span], span_id: str, what: str) -> Response:
        if not spans:
            return HTMLResponse(self._pages.missing(what), status_code=404)
        html = await run_in_threadpool(lambda: self._pages.waterfall(waterfall.build(spans, span_id)))
        return HTMLResponse(html)

    async def trace_json(self, request: Request) -> Response:
        spans = await run_in_threadpool(self._store.spans, request.path_params["trace_id"])
        if not spans:
            return _json({"error": "not_found"}, 404)
        return _json(await run_in_threadpool(waterfall.build, spans))

    async def stylesheet(self, _: Request) -> Response:
        return Response(
            self._pages.stylesheet, media_type="text/css", headers={"cache-control": "max-age=300"}
        )

    async def healthz(self, _: Request) -> Response:
        return _json({"status": "ok"})

    async def readyz(self, _: Request) -> Response:
        """503 when the writer is gone: spans would be taken and lost."""
        ready = self._intake.is_running
        return _json({"ready": ready}, 200 if ready else 503)


def _limit(request: Request) -> int:
    value = request.query_params.get("limit", str(DEFAULT_LIMIT))
    if not (value.isascii() and value.isdecimal() and len(value) <= 4 and 1 <= int(value) <= MAX_LIMIT):
        raise InvalidLimit
    return int(value)


async def _invalid_limit(_request: Request, _error: Exception) -> Response:
    return _json({"error": "invalid_value", "param": "limit", "message": f"limit is 1..{MAX_LIMIT}"}, 400)


def _rejection(num_unusable: int, num_dropped: int) -> tuple[int, str]:
    reasons: list[str] = []
    if num_unusable:
        reasons.append(f"{num_unusable} with an invalid id or time")
    if num_dropped:
        reasons.append(f"{num_dropped} beyond what the queue holds")
    return num_unusable + num_dropped, ", ".join(reasons)


def _refusal(status: int, reason: str, headers: dict[str, str] | None = None) -> Response:
    return _otlp_response(status, otlp.refused(reason), headers)


def _otlp_response(status: int, body: bytes, headers: dict[str, str] | None = None) -> Response:
    return Response(body, status_code=status, media_type=otlp.CONTENT_TYPE, headers=headers)


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")

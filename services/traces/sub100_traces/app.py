"""The HTTP surface: spans in, pages for people, ``/api`` for programs. See access for who may come in."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final
from urllib.parse import quote

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from . import waterfall
from .access import Access, Gate
from .changes import Changes, TooManyWaiters
from .exports import Exports
from .headers import SafeHeaders
from .intake import Intake, IntakeStats
from .pages import Pages
from .spans import Span
from .store import InvalidFilter, QueryTooSlow, Store, filters, fleet
from .summary import MAX_LABEL_CHARS, RequestSummary

DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 1000
NUM_SLOWEST: Final = 10


class Listing(msgspec.Struct, frozen=True):
    """``GET /api/traces``. ``before`` is the cursor of the next page, 0 on the last one."""

    requests: list[RequestSummary]
    before: int
    intake: IntakeStats


class TracesApp:
    """Handlers over one store and its intake."""

    def __init__(
        self,
        store: Store,
        intake: Intake,
        changes: Changes,
        access: Access,
        max_body_bytes: int,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._intake = intake
        self._changes = changes
        self._access = access
        self._clock = clock
        self._pages = Pages()
        self.asgi = Starlette(
            routes=[
                Route("/v1/traces", Exports(intake, max_body_bytes).take, methods=["POST"]),
                Route("/", self.list_page),
                Route("/rows", self.rows),
                Route("/events", self.events),
                Route("/fleet", self.fleet_page),
                Route("/trace/{trace_id}", self.trace_page),
                Route("/r/{request_id}", self.request_page),
                Route("/request/{request_id}", self.old_request_page),
                Route("/api/traces", self.list_json),
                Route("/api/trace/{trace_id}", self.trace_json),
                Route("/api/fleet", self.fleet_json),
                Route("/login", access.login_page, methods=["GET"]),
                Route("/login", access.login, methods=["POST"]),
                Route("/logout", access.logout, methods=["POST"]),
                Route("/static/{name}", self.static),
                Route("/healthz", self.healthz),
                Route("/readyz", self.readyz),
            ],
            middleware=[Middleware(SafeHeaders), Middleware(Gate, access=access)],
            exception_handlers={InvalidFilter: _invalid, QueryTooSlow: _too_slow},
        )

    async def list_page(self, request: Request) -> Response:
        wanted, limit = filters.parse(request.query_params), _limit(request)

        def load() -> str:
            page = self._store.page(wanted, limit)
            kept = self._store.num_traces(), self._store.num_requests()
            return self._pages.listing(page, wanted, self._store.facets(), self._intake.stats, kept)

        return HTMLResponse(await run_in_threadpool(load))

    async def rows(self, request: Request) -> Response:
        """The lines of one page, for the page's own script; 304 while nothing is new."""
        wanted, limit = filters.parse(request.query_params), _limit(request)
        tag = f'"{self._changes.version}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"etag": tag})

        def load() -> tuple[str, int]:
            page = self._store.page(wanted, limit)
            return self._pages.rows(page), page.before

        html, before = await run_in_threadpool(load)
        return HTMLResponse(html, headers={"etag": tag, "x-before": str(before)})

    async def events(self, _: Request) -> Response:
        """Server-sent events: a number that changes when readers would see something new."""
        versions = self._changes.watch()
        try:
            first = await anext(versions, None)
        except TooManyWaiters:
            return Response(status_code=503, headers={"retry-after": "10"})

        async def stream() -> AsyncIterator[bytes]:
            yield f"retry: 1000\ndata: {first}\n\n".encode()
            async for version in versions:
                yield f"data: {version}\n\n".encode()

        return StreamingResponse(stream(), media_type="text/event-stream")

    async def fleet_page(self, request: Request) -> Response:
        wanted = fleet.parse(request.query_params)

        def load() -> str:
            now_s = self._clock()
            shown = self._store.fleet(wanted, now_s)
            slowest = self._store.slowest(now_s - fleet.RANGES[wanted.range][0], NUM_SLOWEST, wanted)
            return self._pages.fleet(shown, wanted, self._store.facets(), slowest)

        return HTMLResponse(await run_in_threadpool(load))

    async def trace_page(self, request: Request) -> Response:
        """All spans of a trace, whatever requests it holds."""
        spans = await run_in_threadpool(self._store.spans, request.path_params["trace_id"])
        return await self._waterfall_page(spans, "", "trace")

    async def request_page(self, request: Request) -> Response:
        """One request's own part of its trace."""

        def load() -> tuple[Sequence[Span], str]:
            found = self._store.request(request.path_params["request_id"][:MAX_LABEL_CHARS])
            return (self._store.spans(found.trace_id), found.span_id) if found is not None else ((), "")

        spans, span_id = await run_in_threadpool(load)
        return await self._waterfall_page(spans, span_id, "request")

    async def old_request_page(self, request: Request) -> Response:
        return RedirectResponse(f"/r/{quote(request.path_params['request_id'], safe='')}", status_code=308)

    async def _waterfall_page(self, spans: Sequence[Span], span_id: str, what: str) -> Response:
        if not spans:
            return HTMLResponse(self._pages.missing(what), status_code=404)
        html = await run_in_threadpool(lambda: self._pages.waterfall(waterfall.build(spans, span_id)))
        return HTMLResponse(html)

    async def list_json(self, request: Request) -> Response:
        page = await run_in_threadpool(self._store.page, filters.parse(request.query_params), _limit(request))
        return _json(Listing(page.requests, page.before, self._intake.stats))

    async def trace_json(self, request: Request) -> Response:
        spans = await run_in_threadpool(self._store.spans, request.path_params["trace_id"])
        if not spans:
            return _json({"error": "not_found"}, 404)
        return _json(await run_in_threadpool(waterfall.build, spans))

    async def fleet_json(self, request: Request) -> Response:
        wanted = fleet.parse(request.query_params)
        return _json(await run_in_threadpool(lambda: self._store.fleet(wanted, self._clock())))

    async def static(self, request: Request) -> Response:
        found = self._pages.static.get(request.path_params["name"])
        if found is None:
            return Response(status_code=404)
        body, media_type = found
        return Response(body, media_type=media_type, headers={"cache-control": "max-age=300"})

    async def healthz(self, _: Request) -> Response:
        return _json({"status": "ok"})

    async def readyz(self, _: Request) -> Response:
        """503 when the writer is gone: spans would be taken and lost."""
        ready = self._intake.is_running
        return _json({"ready": ready}, 200 if ready else 503)


def _limit(request: Request) -> int:
    value = request.query_params.get("limit", str(DEFAULT_LIMIT))
    if not (value.isascii() and value.isdecimal() and len(value) <= 4 and 1 <= int(value) <= MAX_LIMIT):
        raise InvalidFilter("limit", f"1..{MAX_LIMIT}")
    return int(value)


async def _invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, InvalidFilter)
    return _json({"error": "invalid_value", "param": error.parameter, "message": str(error)}, 400)


async def _too_slow(_request: Request, _error: Exception) -> Response:
    message = "this search took too long: narrow it"
    return _json({"error": "too_slow", "message": message}, 503)


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")

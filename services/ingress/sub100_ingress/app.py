"""The routes: bytes of a request in, an Exchange out of them, its response back."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.routing import Route

from sub100_shared import semconv
from sub100_shared.clock import Clock
from sub100_shared.errors import ClientError, Evicted, Refused, Sub100Error

from . import cache_control, cache_stats, door
from .body_room import BodyRoom
from .cache_control import CacheControl
from .cache_key import CacheKey, cache_key, is_cacheable
from .chunks import ChatChunks, ChunkWriter, CompletionChunks
from .delivery import BodyResponder, Responder, Send, SseResponder, send_error
from .exchange import Exchange
from .http_body import ClientDisconnected, Receive, disconnected, read_body
from .http_connection import CONNECTION, Connection
from .keys import KeyRing, Tenant
from .lookup import CacheClient
from .model_revision import ModelRevision
from .openai_request import GenerationRequest, parse_chat, parse_completion
from .opening import Opener
from .request_metrics import RequestMetrics
from .serving import Serving
from .tool_support import ToolSupport

Parse = Callable[[bytes], GenerationRequest]


class Surface(msgspec.Struct, frozen=True, kw_only=True):
    """What the routes need. ``refusal``: why nothing can be served now, or None."""

    serving: Serving
    cache: CacheClient
    opener: Opener
    metrics: RequestMetrics
    clock: Clock
    model: str
    model_revision: ModelRevision
    shown_time: Callable[[], str]
    tools: ToolSupport
    created: int
    use_cache: bool
    max_body_bytes: int
    body_room: BodyRoom
    body_timeout_s: float
    long_prompt_bytes: int


def create_app(surface: Surface, keys: KeyRing, refusal: Any, is_ready: Callable[[], bool]) -> door.Door:
    """The ASGI application, behind its door."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)

    # ASGI objects, not handler functions: the generating routes skip FastAPI's per-request machinery.
    chat = GeneratingRoute(surface, parse_chat, ChatChunks, semconv.REQUEST_CHAT)
    text = GeneratingRoute(surface, parse_completion, CompletionChunks, semconv.REQUEST_COMPLETION)
    app.router.routes.append(Route("/v1/chat/completions", chat, methods=["POST"]))
    app.router.routes.append(Route("/v1/completions", text, methods=["POST"]))

    @app.get("/v1/models")
    async def models() -> Response:
        return _json({"object": "list", "data": [_model_card(surface)]})

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> Response:
        if name != surface.model:
            raise _unknown_model(name, surface.model)
        return _json(_model_card(surface))

    @app.get("/v1/cache/stats")
    async def stats(request: Request) -> Response:
        tenant: Tenant = request.scope[door.TENANT]
        with surface.serving.slot(tenant):
            found = await surface.cache.stats(tenant.name)
        return Response(cache_stats.body(tenant.name, found), media_type="application/json")

    @app.get("/healthz")
    async def healthz() -> Response:
        return _json({"status": "ok"})

    @app.get("/readyz")
    async def readyz() -> Response:
        ready = is_ready()
        return _json({"ready": ready}, status=200 if ready else 503)

    app.add_exception_handler(Sub100Error, _on_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_bug)
    return door.Door(app, keys, surface.clock, refusal, surface.metrics.refused)


class GeneratingRoute:
    """A route that generates: reads, opens the exchange, answers. One frame per request, no middleware."""

    def __init__(
        self, surface: Surface, parse: Parse, chunk_writer: Callable[..., ChunkWriter], operation: str
    ) -> None:
        self._surface = surface
        self._parse = parse
        self._chunk_writer = chunk_writer
        self._operation = operation

    async def __call__(self, scope: door.Scope, receive: Receive, send: Send) -> None:
        tenant: Tenant = scope[door.TENANT]
        with self._surface.body_room.hold(tenant.name) as take:
            await self._serve(scope, receive, send, tenant, take)

    async def _serve(
        self, scope: door.Scope, receive: Receive, send: Send, tenant: Tenant, take: Callable[[int], None]
    ) -> None:
        surface = self._surface
        headers = Headers(scope=scope)
        try:
            body = await read_body(
                receive,
                headers.get("content-length"),
                limit=surface.max_body_bytes,
                timeout_s=surface.body_timeout_s,
                take=take,
            )
            control = cache_control.parse(headers.getlist("cache-control"))
            revision = self._cache_revision(tenant, control)
            if len(body) > surface.long_prompt_bytes:
                request, key = await asyncio.to_thread(self._read, body, tenant, revision)
            else:
                request, key = self._read(body, tenant, revision)
            ex = surface.opener.open(
                headers,
                request,
                tenant,
                request_id=scope[door.REQUEST_ID],
                arrived_at_ms=scope[door.ARRIVED],
                operation=self._operation,
                route=scope["path"],
            )
            ex.key, ex.cache_control = key, control
        except (ClientError, Refused) as error:
            surface.metrics.refused(error.code)
            await send_error(send, error, scope[door.REQUEST_ID])
            return
        except ClientDisconnected:
            return
        writer = self._chunk_writer(
            request_id=ex.request_id, model=request.model, include_usage=request.include_usage
        )
        responder: Responder = (SseResponder if request.stream else BodyResponder)(ex, writer, send)
        answering = surface.serving.answer(ex, responder, len(body))
        await _until_disconnect(answering, ex, receive, scope[CONNECTION])

    def _cache_revision(self, tenant: Tenant, control: CacheControl) -> str:
        """Of the model, for a request that may use the cache; else empty."""
        surface = self._surface
        may_use = surface.use_cache and control.may_write and tenant.cache != "off"
        return surface.model_revision.now() if may_use else ""

    def _read(self, body: bytes, tenant: Tenant, revision: str) -> tuple[GenerationRequest, CacheKey | None]:
        """The request and its cache key, if it has one; runs in a thread for long bodies."""
        surface = self._surface
        request = self._parse(body)
        if request.model != surface.model:
            raise _unknown_model(request.model, surface.model)
        request = surface.tools.admitted(request)
        if not (revision and is_cacheable(request, tenant)):
            return request, None
        return request, cache_key(request, tenant, revision, surface.shown_time())


async def _until_disconnect(
    answering: Coroutine[Any, Any, None], ex: Exchange, receive: Receive, connection: Connection
) -> None:
    """Answer; a client that leaves, or is cut, cancels everything that its request holds, streaming or
    not."""
    task = asyncio.current_task()
    assert task is not None

    async def watch() -> None:
        await disconnected(receive)
        if connection.was_cut:
            ex.code = "slow_client"
        task.cancel()

    watcher = asyncio.create_task(watch())
    try:
        await answering
    except asyncio.CancelledError:
        if not watcher.done() or watcher.cancelled():
            raise  # not the client: the server itself is going down
        task.uncancel()
    finally:
        watcher.cancel()


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, Sub100Error)
    return _ErrorResponse(error, request.scope[door.REQUEST_ID])


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        ours = ClientError("method_not_allowed", f"{request.method} is not allowed here")
    else:
        ours = ClientError("not_found", f"no such path: {request.method} {request.url.path[:200]}")
    return _ErrorResponse(ours, request.scope[door.REQUEST_ID])


async def _on_bug(request: Request, error: Exception) -> Response:
    """Our own mistake: logged where it happened (the server logs the traceback), told without details."""
    return _ErrorResponse(Evicted("internal_error", "internal error"), request.scope[door.REQUEST_ID])


class _ErrorResponse(Response):
    def __init__(self, error: Sub100Error, request_id: str) -> None:
        super().__init__()
        self._error = error
        self._request_id = request_id

    async def __call__(self, scope: door.Scope, receive: Receive, send: Send) -> None:
        await send_error(send, self._error, self._request_id)


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")


def _model_card(surface: Surface) -> dict[str, object]:
    return {"id": surface.model, "object": "model", "created": surface.created, "owned_by": "sub100"}


def _unknown_model(name: str, known: str) -> ClientError:
    return ClientError(
        "model_not_found", f"the model {name[:100]!r} does not exist (there is {known!r})", param="model"
    )

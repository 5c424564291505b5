"""The service over real HTTP: OpenTelemetry's own exporter in, pages out."""

import asyncio
import gzip
import re
import secrets
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import httpx
import pytest
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace import Status as SpanStatus
from tests.patience import PATIENCE_S, at_best_async

from sub100_shared import semconv
from sub100_traces.config import TracesConfig
from sub100_traces.service import TracesService

OTLP_HEADERS = {"content-type": "application/x-protobuf"}
XSS = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>"
OUR_SCRIPT = '<script src="/static/page.js" defer>'
MS = 1_000_000


def spawn(coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(coroutine, name=name)


@pytest.fixture
async def service() -> AsyncIterator[TracesService]:
    service = TracesService(TracesConfig(port=0, max_traces=5, max_body_bytes=1 << 20), spawn)
    await service.start()
    yield service
    await service.stop()
    await service.stop()


@pytest.fixture
async def client(service: TracesService) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=service.url, timeout=10) as client:
        yield client


class Exporter:
    """A process of ours as the service sees it: batch processor and OTLP exporter, unchanged."""

    def __init__(
        self, url: str, service_name: str, compression: Compression = Compression.NoCompression
    ) -> None:
        self.provider = TracerProvider(
            resource=Resource.create({"service.name": service_name}), shutdown_on_exit=False
        )
        exporter = OTLPSpanExporter(endpoint=f"{url}/v1/traces", compression=compression, timeout=5)
        self.provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=100))
        self.tracer = self.provider.get_tracer("sub100")

    async def close(self) -> None:
        await asyncio.to_thread(self.provider.shutdown)


def send_request(ingress: Exporter, prefill: Exporter, request_id: str, tenant: str = "acme") -> str:
    """A late request: chat > (cache, prefill > worker); returns its trace id."""
    start = time.time_ns()
    chat = ingress.tracer.start_span(
        semconv.REQUEST_CHAT,
        kind=SpanKind.SERVER,
        start_time=start,
        attributes={
            semconv.REQUEST_ID: request_id,
            semconv.TENANT: tenant,
            semconv.MODEL: "smol",
            semconv.TIER: semconv.TIER_WARM,
            semconv.BUDGET_TOTAL_MS: 100.0,
            semconv.TTFT_MS: 131.25,
            semconv.BLAME: semconv.HOP_PREFILL,
            semconv.HTTP_STATUS: 200,
        },
    )
    inside = set_span_in_context(chat)
    cache = ingress.tracer.start_span(semconv.CACHE_LOOKUP, inside, start_time=start + 1 * MS)
    cache.end(start + 3 * MS)
    job = ingress.tracer.start_span(
        semconv.PREFILL,
        inside,
        start_time=start + 4 * MS,
        attributes={
            semconv.HOP: semconv.HOP_PREFILL,
            semconv.ALLOTTED_MS: 40.0,
            semconv.SPENT_MS: 120.0,
            semconv.OVERRUN_MS: 80.0,
            semconv.CRITICAL: True,
        },
    )
    worker = prefill.tracer.start_span(
        semconv.PREFILL_SERVE, set_span_in_context(job), start_time=start + 5 * MS
    )
    worker.end(start + 123 * MS)
    job.end(start + 124 * MS)
    chat.end(start + 900 * MS)
    return f"{chat.get_span_context().trace_id:032x}"


async def eventually(client: httpx.AsyncClient, path: str, wanted: str) -> httpx.Response:
    """Ask until the answer holds ``wanted``; the page has no event to wait on."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            response = await client.get(path)
            if wanted in response.text:
                return response
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip])
async def test_service_lists_a_request_within_a_second_of_its_end(
    service: TracesService, client: httpx.AsyncClient, compression: Compression
) -> None:
    ingress = Exporter(service.url, "sub100-ingress", compression)
    prefill = Exporter(service.url, "sub100-prefill", compression)

    async def listed_after_s() -> float:
        request_id = f"req-{secrets.token_hex(4)}"
        trace_id = send_request(ingress, prefill, request_id)
        began = time.monotonic()
        page = await eventually(client, "/", request_id)
        took_s = time.monotonic() - began
        for cell in ("acme", "warm", "200", "131.2 ms", "+31 ms", "prefill", f"/r/{request_id}"):
            assert cell in page.text
        newest = (await client.get("/api/traces")).json()["requests"][0]
        told = (newest["request_id"], newest["trace_id"], newest["ttft_ms"])
        assert told == (request_id, trace_id, 131.25)
        return took_s

    await at_best_async(listed_after_s, 1, "listed after")
    await ingress.close()
    await prefill.close()


async def test_service_shows_the_tree_over_processes_on_the_ruler_of_the_first_token(
    service: TracesService, client: httpx.AsyncClient
) -> None:
    ingress, prefill = Exporter(service.url, "sub100-ingress"), Exporter(service.url, "sub100-prefill")
    trace_id = send_request(ingress, prefill, "req-1")
    await ingress.close()
    await prefill.close()
    await eventually(client, f"/api/trace/{trace_id}", semconv.PREFILL_SERVE)
    built = (await eventually(client, f"/api/trace/{trace_id}", "req-1")).json()
    assert [(row["span"]["name"], row["span"]["service"], row["depth"]) for row in built["rows"]] == [
        ("chat", "sub100-ingress", 0),
        ("cache.lookup", "sub100-ingress", 1),
        ("prefill.job", "sub100-ingress", 1),
        ("prefill.process", "sub100-prefill", 2),
    ]
    assert [(row["offset_ms"], row["duration_ms"]) for row in built["rows"]] == [
        (0, 900),
        (1, 2),
        (4, 120),
        (5, 118),
    ]
    assert [row["hop"] for row in built["rows"]] == ["", "", "prefill", "prefill"]
    account = built["rows"][2]["account"]
    assert (account["is_critical"], account["spent_ms"], account["allotted_ms"]) == (True, 120, 40)
    assert built["ruler"] == {"first_ms": 131.25, "total_ms": 900}
    for path in ("/r/req-1", f"/trace/{trace_id}"):
        page = await client.get(path)
        assert page.status_code == 200
        for part in ("prefill.process", "Prefill took 120 ms of its 40", "31 ms over its 100", "+80 ms"):
            assert part in page.text


async def test_pages_run_nothing_when_attributes_hold_markup(
    service: TracesService, client: httpx.AsyncClient
) -> None:
    exporter = Exporter(service.url, XSS)
    shown = (semconv.REQUEST_ID, semconv.TENANT, semconv.MODEL, semconv.TIER, semconv.BLAME, XSS)
    attributes = dict.fromkeys(shown, XSS)
    span = exporter.tracer.start_span(XSS, attributes=attributes)
    span.set_status(SpanStatus(StatusCode.ERROR, XSS))
    span.add_event(XSS, {XSS: XSS})
    span.end()
    trace_id = f"{span.get_span_context().trace_id:032x}"
    await exporter.close()
    listing = await eventually(client, "/", "&lt;script&gt;")
    waterfall = await client.get(f"/trace/{trace_id}")
    for page in (listing, waterfall):
        assert page.status_code == 200
        assert re.findall("<script[^>]*>", page.text) == [OUR_SCRIPT]
        assert "<img" not in page.text
        assert "default-src 'none'; script-src 'self';" in page.headers["content-security-policy"]
        assert "unsafe-inline" not in page.headers["content-security-policy"]
        assert "style=" not in page.text
        assert page.headers["x-content-type-options"] == "nosniff"


async def test_service_keeps_the_newest_traces_only(
    service: TracesService, client: httpx.AsyncClient
) -> None:
    exporter = Exporter(service.url, "sub100-ingress")
    traces = [send_request(exporter, exporter, f"req-{number}") for number in range(12)]
    await exporter.close()
    await eventually(client, "/", "req-11")
    await eventually(client, "/", "5 traces kept")
    listed = (await client.get("/api/traces")).json()["requests"]
    assert [item["request_id"] for item in listed] == ["req-11", "req-10", "req-9", "req-8", "req-7"]
    assert (await client.get(f"/api/trace/{traces[0]}")).status_code == 404
    assert "5 traces kept" in (await client.get("/")).text


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({}, b"garbage", 400),
        ({}, b"\xff" * 1000, 400),
        ({"content-encoding": "gzip"}, b"not gzip", 400),
        ({"content-encoding": "br"}, b"", 415),
        ({"content-type": "application/json"}, b"{}", 415),
        ({}, b"\n" * ((1 << 20) + 1), 413),
        ({"content-encoding": "gzip"}, gzip.compress(bytes(1 << 24)), 413),
    ],
)
async def test_export_refuses_bad_bodies_and_goes_on(
    client: httpx.AsyncClient, headers: dict[str, str], body: bytes, status: int
) -> None:
    response = await client.post("/v1/traces", content=body, headers=OTLP_HEADERS | headers)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/x-protobuf"
    assert Status.FromString(response.content).message
    assert (await client.post("/v1/traces", content=b"", headers=OTLP_HEADERS)).status_code == 200


async def test_export_tells_the_sender_how_many_spans_were_not_taken() -> None:
    service = TracesService(TracesConfig(port=0, max_queue_spans=1), spawn)
    await service.start()
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for number in range(100):
        scope.spans.add(trace_id=b"t" * 16, span_id=bytes([number + 1] * 8), start_time_unix_nano=1)
    scope.spans.add(trace_id=b"short", span_id=b"s" * 8, start_time_unix_nano=1)
    async with httpx.AsyncClient(base_url=service.url, timeout=10) as client:
        response = await client.post("/v1/traces", content=request.SerializeToString(), headers=OTLP_HEADERS)
        stats = (await client.get("/api/traces")).json()["intake"]
    answer = ExportTraceServiceResponse.FromString(response.content).partial_success
    assert response.status_code == 200
    assert answer.rejected_spans == 100
    assert "1 with an invalid id" in answer.error_message
    assert "99 beyond" in answer.error_message
    assert (stats["received"], stats["dropped"]) == (100, 99)
    await service.stop()


async def test_service_says_so_when_there_is_no_such_trace(client: httpx.AsyncClient) -> None:
    for path in ("/trace/abc", "/r/req-none", "/r/%3Cscript%3E"):
        page = await client.get(path)
        assert page.status_code == 404
        assert re.findall("<script[^>]*>", page.text) == [OUR_SCRIPT]
    assert (await client.get("/api/trace/abc")).json() == {"error": "not_found"}


@pytest.mark.parametrize("limit", ["0", "-1", "1001", "x", "", "1e3", "٣"])
async def test_list_refuses_a_limit_out_of_range(client: httpx.AsyncClient, limit: str) -> None:
    response = await client.get("/api/traces", params={"limit": limit})
    assert response.status_code == 400
    assert response.json()["param"] == "limit"


async def test_service_is_live_ready_and_serves_its_files(client: httpx.AsyncClient) -> None:
    assert (await client.get("/healthz")).json() == {"status": "ok"}
    assert (await client.get("/readyz")).json() == {"ready": True}
    for name, kind in (("style.css", "text/css"), ("page.js", "text/javascript")):
        assert (await client.get(f"/static/{name}")).headers["content-type"].startswith(kind)
    assert (await client.get("/static/..%2fapp.py")).status_code == 404
    assert "No request has been traced yet" in (await client.get("/")).text


async def test_start_names_the_address_when_the_port_is_taken(service: TracesService) -> None:
    port = int(service.url.rpartition(":")[2])
    second = TracesService(TracesConfig(port=port), spawn)
    with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}"):
        await second.start()
    await second.stop()


async def test_stop_writes_what_was_taken(tmp_path: Any) -> None:
    config = TracesConfig(port=0, path=str(tmp_path / "traces.db"))
    service = TracesService(config, spawn)
    await service.start()
    exporter = Exporter(service.url, "sub100-ingress")
    send_request(exporter, exporter, "req-1")
    await exporter.close()
    await service.drain(5)
    await service.stop()
    again = TracesService(config, spawn)
    await again.start()
    async with httpx.AsyncClient(base_url=again.url) as client:
        assert (await client.get("/r/req-1")).status_code == 200
    await again.stop()


async def test_events_tell_of_a_request_and_end_with_the_service(
    service: TracesService, client: httpx.AsyncClient
) -> None:
    exporter = Exporter(service.url, "sub100-ingress")
    async with client.stream("GET", "/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = (line async for line in stream.aiter_lines() if line.startswith("data: "))
        before = await anext(lines)
        send_request(exporter, exporter, "req-1")
        async with asyncio.timeout(PATIENCE_S):
            assert await anext(lines) != before
        began = time.monotonic()
        await service.drain(5)
        assert len([line async for line in lines]) <= 2
    assert time.monotonic() - began < 10, "its heartbeat alone would come every 15 s"
    await exporter.close()


async def test_rows_are_sent_again_only_when_something_is_new(
    service: TracesService, client: httpx.AsyncClient
) -> None:
    first, second = (Exporter(service.url, "sub100-ingress") for _ in range(2))
    send_request(first, first, "req-1")
    await first.close()
    rows = await eventually(client, "/rows", "h-prefill")
    async with asyncio.timeout(PATIENCE_S):  # until it has settled: nothing more will come
        while (again := await client.get("/rows", headers=known(rows))).status_code != 304:
            rows = again
    assert again.text == ""
    send_request(second, second, "req-2")
    await eventually(client, "/rows", "req-2")
    assert (await client.get("/rows", headers=known(rows))).status_code == 200
    await second.close()


def known(rows: httpx.Response) -> dict[str, str]:
    return {"if-none-match": rows.headers["etag"]}


async def test_list_pages_by_cursor_and_refuses_a_bad_filter(
    service: TracesService, client: httpx.AsyncClient
) -> None:
    exporter = Exporter(service.url, "sub100-ingress")
    for number in range(5):
        send_request(exporter, exporter, f"req-{number}", tenant=f"tenant-{number % 2}")
    await exporter.close()
    await eventually(client, "/", "req-4")
    seen: list[str] = []
    before = 0
    for _ in range(3):
        page = (await client.get(f"/api/traces?limit=2&before={before}")).json()
        seen += [item["request_id"] for item in page["requests"]]
        before = page["before"]
    assert (sorted(seen), before) == ([f"req-{number}" for number in range(5)], 0)
    filtered = (await client.get("/api/traces?tenant=tenant-1&late=1&blame=prefill")).json()["requests"]
    assert {item["tenant"] for item in filtered} == {"tenant-1"}
    for bad in ("status=6xx", "late=2", "before=x"):
        refused = await client.get(f"/api/traces?{bad}")
        assert (refused.status_code, refused.json()["param"]) == (400, bad.partition("=")[0])
    assert (await client.get("/fleet?range=1y")).status_code == 400


async def test_fleet_page_counts_what_has_settled(service: TracesService, client: httpx.AsyncClient) -> None:
    assert "No request ended in this range" in (await client.get("/fleet")).text
    exporter = Exporter(service.url, "sub100-ingress")
    send_request(exporter, exporter, "req-1")
    await exporter.close()
    page = await eventually(client, "/fleet", "Most blamed")
    assert "Who is to blame for the 1 that missed" in page.text
    found = (await client.get("/api/fleet?range=15m")).json()
    assert (found["num"], found["outcomes"]) == (1, {"prefill": 1})


async def test_waterfall_of_an_endless_trace_is_cut_and_says_so(
    service: TracesService, client: httpx.AsyncClient
) -> None:
    exporter = Exporter(service.url, "sub100-ingress")
    root = exporter.tracer.start_span("chat", attributes={semconv.REQUEST_ID: "req-1"})
    inside = set_span_in_context(root)
    for _ in range(1500):
        exporter.tracer.start_span("step", inside).end()
    root.end()
    await exporter.close()
    page = await eventually(client, "/r/req-1", "501 more spans")
    assert page.text.count("<details") == 1000

"""Spans of one request as ingress and workers make them, for tests of the traces service."""

from typing import Any

from sub100_shared import semconv
from sub100_traces.spans import Span

MS = 1_000_000
START_NS = 1_760_000_000_000_000_000


def root(number: int, **attributes: Any) -> Span:
    """A late request: TTFT 81 ms and 30 ms of network, of a budget of 100."""
    values: dict[str, Any] = {
        semconv.REQUEST_ID: f"req-{number}",
        semconv.TENANT: "acme",
        semconv.REGION: "eu",
        semconv.TIER: "cold",
        semconv.HTTP_STATUS: 200,
        semconv.NETWORK_MS: 30.0,
        semconv.TTFT_MS: 81.0,
        semconv.BUDGET_TOTAL_MS: 100.0,
        semconv.BLAME: "prefill",
        semconv.ATTEMPTS: 1,
    }
    return span(number, 1, 0, 400, parent=0, name="chat", **(values | attributes))


def hop(
    number: int,
    name: str,
    start_ms: float,
    spent_ms: float,
    allotted_ms: float,
    *,
    critical: bool = True,
    worker: str = "",
    bus_ms: float = 0.5,
    span_number: int = 0,
) -> Span:
    attributes: dict[str, Any] = {
        semconv.HOP: name,
        semconv.SPENT_MS: spent_ms,
        semconv.ALLOTTED_MS: allotted_ms,
        semconv.OVERRUN_MS: max(0.0, spent_ms - allotted_ms),
        semconv.BUS_MS: bus_ms,
        semconv.CRITICAL: critical,
    }
    if worker:
        attributes[semconv.WORKER] = worker
    span_number = span_number or 100 + sum(name.encode()) + int(start_ms)
    return span(number, span_number, start_ms, start_ms + spent_ms, name=f"{name}.job", **attributes)


def hops(number: int) -> list[Span]:
    """Cache beside schedule (hidden), prefill over its allotment, decode after the first token."""
    return [
        hop(number, "cache", 1, 2, 10, critical=False),
        hop(number, "schedule", 1, 4, 5),
        hop(number, "prefill", 6, 72, 60, worker="prefill-2"),
        hop(number, "decode", 82, 300, 0, critical=False, worker="decode-1"),
    ]


def span(
    number: int,
    span_number: int,
    start_ms: float,
    end_ms: float,
    *,
    parent: int = 1,
    name: str = "span",
    service: str = "sub100-ingress",
    instance: str = "ingress-1",
    **attributes: Any,
) -> Span:
    return Span(
        trace_id=f"{number:032x}",
        span_id=f"{span_number:016x}",
        parent_id=f"{parent:016x}" if parent else "",
        name=name,
        service=service,
        instance=instance,
        start_ns=START_NS + int(start_ms * MS),
        end_ns=START_NS + int(end_ms * MS),
        attributes=attributes,
    )

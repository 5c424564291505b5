"""A fleet's requests as OTLP bodies: what the browser tests and the screenshots look at.

Deterministic: the same seed makes the same requests. Times are given by the caller.
"""

import random
from typing import Any, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2

from sub100_shared import semconv

MS: Final = 1_000_000
REGIONS: Final = ("eu-west", "us-east", "ap-south")
TENANTS: Final = ("acme", "globex", "initech", "umbrella")
ALLOTTED: Final = {"cache": 10.0, "schedule": 5.0, "prefill": 60.0}


class Export:
    """One body in the making: spans of several processes."""

    def __init__(self) -> None:
        self._request = ExportTraceServiceRequest()
        self._groups: dict[tuple[str, str], Any] = {}

    @property
    def body(self) -> bytes:
        return bytes(self._request.SerializeToString())

    def span(
        self,
        process: tuple[str, str],
        name: str,
        ids: tuple[bytes, bytes, bytes],
        start_ns: int,
        length_ms: float,
        attributes: dict[str, Any],
        error: str = "",
    ) -> bytes:
        """Add a span of ``process`` (service, instance); ids are trace, span and parent. Returns its id."""
        group = self._groups.get(process)
        if group is None:
            resource = self._request.resource_spans.add()
            resource.resource.attributes.add(key="service.name").value.string_value = f"sub100-{process[0]}"
            resource.resource.attributes.add(key="service.instance.id").value.string_value = process[1]
            group = self._groups[process] = resource.scope_spans.add().spans
        span: trace_pb2.Span = group.add()
        span.trace_id, span.span_id, span.parent_span_id = ids
        span.name = name
        span.start_time_unix_nano = start_ns
        span.end_time_unix_nano = start_ns + int(length_ms * MS)
        if error:
            span.status.code = trace_pb2.Status.STATUS_CODE_ERROR
            span.status.message = error
            attributes = attributes | {semconv.CODE: error}
        for key, value in attributes.items():
            field = span.attributes.add(key=key).value
            match value:
                case bool():
                    field.bool_value = value
                case int():
                    field.int_value = value
                case float():
                    field.double_value = value
                case list():
                    for item in value:
                        field.array_value.values.add().string_value = item
                case _:
                    field.string_value = value
        return ids[1]


class Fleet:
    """Adds requests to an Export, each with the hops that its story needs."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._num = 0

    def request(
        self,
        export: Export,
        start_ns: int,
        *,
        request_id: str = "",
        queue_ms: float = 1.0,
        compute_ms: float = 38.0,
        schedule_ms: float = 1.4,
        network_ms: float = 12.0,
        answer_ms: float = 700.0,
        tier: str = semconv.TIER_COLD,
        error: str = "",
        lost: bool = False,
        skew_ms: float = 0.0,
        **root: Any,
    ) -> str:
        """One request; returns its id. ``lost``: the first prefill worker dies. ``skew_ms``: of the
        workers."""
        draw = self._random
        self._num += 1
        request_id = request_id or f"req-{draw.randbytes(8).hex()}"
        trace_id = draw.randbytes(16)
        root_id = draw.randbytes(8)
        at_ms = 0.9
        worker = draw.randrange(3) + 1
        ingress = ("ingress", "ingress-1")

        def hop(name: str, hop_name: str, start_ms: float, spent_ms: float, **extra: Any) -> bytes:
            attributes = {
                semconv.HOP: hop_name,
                semconv.ALLOTTED_MS: ALLOTTED.get(hop_name, 0.0),
                semconv.SPENT_MS: spent_ms,
                semconv.OVERRUN_MS: max(0.0, spent_ms - ALLOTTED.get(hop_name, 0.0)),
                semconv.BUS_MS: 0.7,
                semconv.CRITICAL: True,
            }
            error_code = str(extra.pop("error", ""))
            ids = (trace_id, draw.randbytes(8), root_id)
            start = start_ns + int(start_ms * MS)
            return export.span(ingress, name, ids, start, spent_ms, attributes | extra, error_code)

        def inner(
            process: tuple[str, str], name: str, parent: bytes, start_ms: float, length_ms: float
        ) -> bytes:
            skewed = start_ms + (skew_ms if process[0] in ("prefill", "decode") else 0.0)
            ids = (trace_id, draw.randbytes(8), parent)
            return export.span(process, name, ids, start_ns + int(skewed * MS), length_ms, {})

        is_hit = tier == semconv.TIER_EXACT
        cache_ms = 1.6 if is_hit else draw.uniform(0.8, 2.2)
        looked_up = hop(semconv.CACHE_LOOKUP, "cache", 0.4, cache_ms, **{semconv.CRITICAL: is_hit})
        inner(("cache", "cache-1"), semconv.CACHE_SERVE, looked_up, 0.7, cache_ms - 0.6)
        if is_hit:
            ttft_ms = 0.4 + cache_ms + 0.5
        elif error == "no_capacity":
            placed = hop(semconv.SCHEDULE, "schedule", at_ms, schedule_ms)
            inner(
                ("scheduler", "scheduler-1"), semconv.SCHEDULE_SERVE, placed, at_ms + 0.3, schedule_ms - 0.6
            )
            ttft_ms = 0.0
        else:
            placed = hop(semconv.SCHEDULE, "schedule", at_ms, schedule_ms)
            inner(
                ("scheduler", "scheduler-1"), semconv.SCHEDULE_SERVE, placed, at_ms + 0.3, schedule_ms - 0.6
            )
            at_ms += schedule_ms + 0.3
            if lost:
                hop(
                    semconv.PREFILL,
                    "prefill",
                    at_ms,
                    14.0,
                    **{semconv.WORKER: "prefill-3"},
                    error="worker_lost",
                )
                at_ms += 14.4
            spent_ms = queue_ms + compute_ms + 1.1
            name = f"prefill-{worker}"
            job = hop(semconv.PREFILL, "prefill", at_ms, spent_ms, **{semconv.WORKER: name})
            process = inner(("prefill", name), semconv.PREFILL_SERVE, job, at_ms + 0.4, spent_ms - 0.7)
            inner(("prefill", name), semconv.ENGINE_QUEUE, process, at_ms + 0.5, queue_ms)
            inner(("prefill", name), semconv.ENGINE_COMPUTE, process, at_ms + 0.5 + queue_ms, compute_ms)
            at_ms += spent_ms
            ttft_ms = at_ms + 0.4
            name = f"decode-{worker}"
            extra = {semconv.WORKER: name, semconv.CRITICAL: False}
            job = hop(semconv.DECODE, "decode", at_ms + 0.9, answer_ms, **extra)
            process = inner(("decode", name), semconv.DECODE_SERVE, job, at_ms + 1.3, answer_ms - 1)
            inner(("decode", name), semconv.KV_TRANSFER, process, at_ms + 1.5, 6.5)
            inner(("decode", name), semconv.ENGINE_COMPUTE, process, at_ms + 8.0, 11.0)
        over = {
            "prefill": (queue_ms + compute_ms + 1.1 + 14 * lost - 60) * (not is_hit),
            "schedule": schedule_ms - 5,
            "network": network_ms - 20,
        }
        is_late = bool(ttft_ms) and ttft_ms + network_ms > 100
        attributes: dict[str, Any] = {
            semconv.REQUEST_ID: request_id,
            semconv.TENANT: draw.choice(TENANTS),
            semconv.MODEL: "sub100",
            semconv.REGION: draw.choice(REGIONS),
            semconv.TIER: tier,
            semconv.BUDGET_TOTAL_MS: 100.0,
            semconv.NETWORK_MS: network_ms,
            semconv.BLAME: max(over, key=over.__getitem__) if is_late else "",
            semconv.HTTP_STATUS: 503 if error == "no_capacity" else 200,
            semconv.ATTEMPTS: 1 + lost,
            semconv.INPUT_TOKENS: 412,
            semconv.OUTPUT_TOKENS: 96,
        }
        if ttft_ms:
            attributes |= {semconv.TTFT_MS: ttft_ms, semconv.FINISH_REASONS: ["stop"]}
        length_ms = ttft_ms + (answer_ms if ttft_ms and not is_hit else 3.0)
        ids = (trace_id, root_id, b"")
        export.span(ingress, semconv.REQUEST_CHAT, ids, start_ns, length_ms, attributes | root, error)
        return request_id

    def some(self, export: Export, start_ns: int, num: int, trouble: float = 1.0) -> None:
        """``num`` requests of a usual mix; ``trouble`` stretches the queues."""
        draw = self._random
        for i in range(num):
            kind = draw.random()
            start = start_ns + i * 3 * MS
            network_ms = draw.choice((8.0, 12.0, 18.0, 24.0)) + draw.uniform(0, 3)
            if kind < 0.22:
                self.request(export, start, tier=semconv.TIER_EXACT, network_ms=network_ms)
            elif kind < 0.235:
                self.request(export, start, error="no_capacity", schedule_ms=2.0, network_ms=network_ms)
            elif kind < 0.25:
                self.request(export, start, lost=True, network_ms=network_ms, compute_ms=draw.uniform(30, 60))
            elif kind < 0.26:
                self.request(export, start, schedule_ms=draw.uniform(30, 70), network_ms=network_ms)
            elif kind < 0.27:
                self.request(export, start, network_ms=draw.uniform(70, 120))
            else:
                self.request(
                    export,
                    start,
                    tier=semconv.TIER_WARM if kind < 0.6 else semconv.TIER_COLD,
                    queue_ms=draw.expovariate(1 / (5 * trouble)),
                    compute_ms=draw.lognormvariate(3.3, 0.35),
                    network_ms=network_ms,
                )

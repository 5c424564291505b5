"""Tracing: the only module that knows the OpenTelemetry SDK.

Parents are always passed, never ambient: a long SSE body must not run in another request's context.
Spans leave in batches over OTLP/HTTP to ``OTEL_EXPORTER_OTLP_ENDPOINT``; without that variable nothing
is recorded and a span costs next to nothing. Sampling is decided once, at ingress, by the standard
``OTEL_TRACES_SAMPLER``; the others follow the parent.
"""

import time
from collections.abc import Mapping
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

ENDPOINT_VARIABLE: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_NO_CONTEXT: Final = Context()
_propagator: Final = TraceContextTextMapPropagator()


class Telemetry:
    """One tracer of one process."""

    def __init__(self, tracer: Tracer, provider: TracerProvider | None = None) -> None:
        self._tracer = tracer
        self._provider = provider

    @classmethod
    def create(
        cls,
        service: str,
        instance: str,
        region: str,
        environ: Mapping[str, str],
        *,
        exporter: SpanExporter | None = None,
    ) -> "Telemetry":
        """Export over OTLP if an endpoint is configured, or to ``exporter``; else record nothing."""
        if exporter is None:
            if not environ.get(ENDPOINT_VARIABLE) or environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
                return cls(trace.NoOpTracer())
            exporter = OTLPSpanExporter()
        resource = Resource.create(
            {"service.name": f"sub100-{service}", "service.instance.id": instance, "cloud.region": region}
        )
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(
            BatchSpanProcessor(
                exporter, max_queue_size=16_384, max_export_batch_size=2_048, schedule_delay_millis=500
            )
        )
        return cls(provider.get_tracer("sub100"), provider)

    def start(
        self,
        name: str,
        parent: Span | Context | None,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Mapping[str, AttributeValue] | None = None,
        start_ns: int | None = None,
    ) -> Span:
        """Start a span under ``parent`` (None: a new root). ``start_ns`` is unix time; end it yourself."""
        if parent is None:
            context = _NO_CONTEXT
        elif isinstance(parent, Context):
            context = parent
        else:
            context = trace.set_span_in_context(parent, _NO_CONTEXT)
        return self._tracer.start_span(name, context, kind, attributes, start_time=start_ns)

    def record(
        self,
        name: str,
        parent: Span | Context,
        *,
        start_ns: int,
        duration_ms: float,
        attributes: Mapping[str, AttributeValue] | None = None,
    ) -> None:
        """Add a span that is already over, from a measured duration."""
        span = self.start(name, parent, attributes=attributes, start_ns=start_ns)
        span.end(start_ns + max(0, int(duration_ms * 1e6)))

    def shutdown(self) -> None:
        """Export what is left; bounded by the exporter's own timeout. Blocks: call off the loop."""
        if self._provider is not None:
            self._provider.shutdown()


def inject(span: Span) -> dict[str, str]:
    """Message headers that make the receiver's spans children of ``span``."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, trace.set_span_in_context(span, _NO_CONTEXT))
    return carrier


def extract(headers: Mapping[str, str]) -> Context:
    """The remote parent in ``headers``; a missing or malformed one gives an empty context (a new root)."""
    return _propagator.extract(headers, _NO_CONTEXT)


def fail(span: Span, code: str) -> None:
    """Mark a span as failed with a stable code; messages may hold user text and stay out."""
    span.set_status(Status(StatusCode.ERROR, code))
    span.set_attribute("error.type", code)


def unix_ns() -> int:
    """Wall time for span timestamps only; never used for durations."""
    return time.time_ns()


__all__ = ["Context", "Span", "SpanKind", "Telemetry", "extract", "fail", "inject", "unix_ns"]

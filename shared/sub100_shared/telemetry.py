"""Tracing: the only module that knows the OpenTelemetry SDK.

Parents are always passed, never ambient: a long SSE body must not run in another request's context.
Spans leave in batches over OTLP/HTTP to ``OTEL_EXPORTER_OTLP_ENDPOINT``; without that variable nothing
is recorded and a span costs next to nothing. Sampling is decided once, at ingress, by the standard
``OTEL_TRACES_SAMPLER``; the others follow the parent.
"""

import os
import time
from collections.abc import Callable, Mapping
from typing import Final, cast

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import Decision, Sampler
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    INVALID_SPAN,
    INVALID_SPAN_CONTEXT,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from .otlp import DirectExporter
from .semconv import FIXED
from .spans import RecordedSpan, span_type

ENDPOINT_VARIABLE: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_NO_CONTEXT: Final = Context()
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_UNSAMPLED: Final = TraceFlags(TraceFlags.DEFAULT)
_propagator: Final = TraceContextTextMapPropagator()


class Telemetry:
    """The spans of one process."""

    def __init__(self, recorder: "_Recorder | None" = None) -> None:
        self._recorder = recorder

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
                return cls()
            exporter = DirectExporter()
        resource = Resource.create(
            {"service.name": f"sub100-{service}", "service.instance.id": instance, "cloud.region": region}
        )
        return cls(_Recorder(resource, exporter))

    def start(
        self,
        name: str,
        parent: Span | Context | None,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Mapping[str, AttributeValue] | None = None,
        start_ns: int | None = None,
        is_entry: bool = False,
    ) -> Span:
        """Start a span under ``parent`` (None: a new root). ``start_ns`` is unix time; end it yourself.

        ``is_entry``: here the request enters, so here sampling is decided, whatever the caller's
        ``parent`` asks of the sampler. Such a span and those started under it in this process are recorded
        even when they are not sampled, so that ``keep`` can still export them.
        """
        if self._recorder is None:
            return INVALID_SPAN
        return self._recorder.start(name, parent, kind, attributes, start_ns, is_entry)

    def record(
        self,
        name: str,
        parent: Span | Context,
        *,
        start_ns: int,
        duration_ms: float,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Mapping[str, AttributeValue] | None = None,
    ) -> None:
        """Add a span that is already over, from a measured duration."""
        span = self.start(name, parent, kind=kind, attributes=attributes, start_ns=start_ns)
        span.end(start_ns + max(0, int(duration_ms * 1e6)))

    def shutdown(self) -> None:
        """Export what is left; bounded by the exporter's own timeout. Blocks: call off the loop."""
        if self._recorder is not None:
            self._recorder.shutdown()


class _Recorder:
    """Makes spans, and gives the finished ones that are to be exported to the SDK's batches."""

    def __init__(self, resource: Resource, exporter: SpanExporter) -> None:
        # Never asked for a span: it reads OTEL_TRACES_SAMPLER.
        self._sampler: Sampler = TracerProvider(resource=resource, shutdown_on_exit=False).sampler
        self._span_type = span_type(resource, InstrumentationScope("sub100"))
        self._batches = BatchSpanProcessor(
            exporter, max_queue_size=16_384, max_export_batch_size=2_048, schedule_delay_millis=500
        )

    def start(
        self,
        name: str,
        parent: Span | Context | None,
        kind: SpanKind,
        attributes: Mapping[str, AttributeValue] | None,
        start_ns: int | None,
        is_entry: bool,
    ) -> Span:
        if isinstance(parent, Context):
            above = trace.get_current_span(parent).get_span_context()
        else:
            above = INVALID_SPAN_CONTEXT if parent is None else parent.get_span_context()
        trace_id = above.trace_id if above.is_valid else _new_id(16)
        flags, state = above.trace_flags, above.trace_state
        if is_entry or not above.is_valid:
            caller = parent if isinstance(parent, Context) else _NO_CONTEXT
            verdict = self._sampler.should_sample(caller, trace_id, name, kind, attributes)
            flags = _SAMPLED if verdict.decision is Decision.RECORD_AND_SAMPLE else _UNSAMPLED
            state = verdict.trace_state or state
        context = SpanContext(trace_id, _new_id(8), False, flags, state)
        if not (flags.sampled or is_entry or isinstance(parent, RecordedSpan)):
            return NonRecordingSpan(context)
        fixed = FIXED.get(name)
        if fixed is not None:
            attributes = {**fixed, **attributes} if attributes else fixed
        return self._span_type(
            name, context, above if above.is_valid else None, kind, attributes, start_ns, self._on_end
        )

    def _on_end(self, span: RecordedSpan) -> None:
        self._batches.on_end(cast(ReadableSpan, span))  # it reads what a RecordedSpan has, and no more

    def shutdown(self) -> None:
        shutdown: Callable[[], None] = self._batches.shutdown
        shutdown()


def _new_id(num_bytes: int) -> int:
    return int.from_bytes(os.urandom(num_bytes)) or 1


def keep(span: Span) -> None:
    """Export the span when it ends, though its trace was not sampled."""
    if isinstance(span, RecordedSpan):
        span.keep()


def is_sampled(span: Span) -> bool:
    return span.get_span_context().trace_flags.sampled


def inject(span: Span) -> dict[str, str]:
    """Message headers that make the receiver's spans children of ``span`` (W3C Trace Context)."""
    context = span.get_span_context()
    if not context.is_valid:
        return {}
    carrier = {"traceparent": f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"}
    if context.trace_state:
        carrier["tracestate"] = context.trace_state.to_header()
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


__all__ = [
    "Context",
    "Span",
    "SpanKind",
    "Telemetry",
    "extract",
    "fail",
    "inject",
    "is_sampled",
    "keep",
    "unix_ns",
]

"""Spans of the OpenTelemetry API that cost a tenth of the SDK's (ADR 11), made for one owner each.

A request has a dozen spans, so what a span costs is paid a dozen times within the budget that it explains.
The SDK's spans lock and check every call, for spans that many threads share; ours belong to the one
coroutine that opened them. Samplers, batching and exporting stay the SDK's, which reads of a finished span
what ``ReadableSpan`` promises.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.util.types import AttributeValue

_UNSET: Final = Status()
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)


class RecordedSpan(Span):
    """Attributes are kept as they are given: the caller passes values that OTLP knows."""

    __slots__ = (
        "_attributes",
        "_on_end",
        "context",
        "end_time",
        "kind",
        "name",
        "parent",
        "start_time",
        "status",
    )

    resource: Resource
    """Of the process; set once on the subclass that ``span_type`` makes."""

    instrumentation_scope: InstrumentationScope
    events = ()
    links = ()
    dropped_attributes = dropped_events = dropped_links = 0

    def __init__(
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        kind: SpanKind,
        attributes: Mapping[str, AttributeValue] | None,
        start_ns: int | None,
        on_end: "Callable[[RecordedSpan], None]",
    ) -> None:
        self.name = name
        self.context = context
        self.parent = parent
        self.kind = kind
        self.start_time = time.time_ns() if start_ns is None else start_ns
        self.end_time: int | None = None
        self.status = _UNSET
        self._attributes: dict[str, AttributeValue] = {} if attributes is None else dict(attributes)
        self._on_end = on_end

    @property
    def attributes(self) -> Mapping[str, AttributeValue]:
        return self._attributes

    def get_span_context(self) -> SpanContext:
        return self.context

    def is_recording(self) -> bool:
        return self.end_time is None

    def set_attributes(self, attributes: Mapping[str, AttributeValue]) -> None:
        self._attributes.update(attributes)

    def set_attribute(self, key: str, value: AttributeValue) -> None:
        self._attributes[key] = value

    def update_name(self, name: str) -> None:
        self.name = name

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        self.status = status if isinstance(status, Status) else Status(status, description)

    def end(self, end_time: int | None = None) -> None:
        """Hand the span over; only the first call counts."""
        if self.end_time is None:
            self.end_time = time.time_ns() if end_time is None else end_time
            self._on_end(self)

    def keep(self) -> None:
        """Be exported at the end, sampled or not."""
        of = self.context
        self.context = SpanContext(of.trace_id, of.span_id, of.is_remote, _SAMPLED, of.trace_state)

    def add_event(self, name: str, attributes: Any = None, timestamp: int | None = None) -> None:
        raise NotImplementedError("what happens in a request is a span or an attribute")

    def record_exception(
        self, exception: BaseException, attributes: Any = None, timestamp: Any = None, escaped: bool = False
    ) -> None:
        raise NotImplementedError("messages of exceptions may hold user text: telemetry.fail sets a code")


def span_type(resource: Resource, scope: InstrumentationScope) -> type[RecordedSpan]:
    """The process's own type of span: what all spans share is not kept in each."""
    return type(
        "RecordedSpan",
        (RecordedSpan,),
        {"__slots__": (), "resource": resource, "instrumentation_scope": scope},
    )

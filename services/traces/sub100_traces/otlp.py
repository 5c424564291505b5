"""OTLP/HTTP bodies <-> spans: protobuf, optionally gzip (OTLP specification 1.x, "OTLP/HTTP").

Nothing in a body is trusted: sizes are bounded before and after decompression, a span with an
impossible id or time is rejected alone, long texts are cut.
"""

import zlib
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

import msgspec
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from .spans import Attributes, Event, Span, text

CONTENT_TYPE: Final = "application/x-protobuf"
MAX_ATTRIBUTES: Final = 128
MAX_EVENTS: Final = 32
MAX_ITEMS: Final = 128
MAX_NAME_CHARS: Final = 256
MAX_VALUE_CHARS: Final = 4096
_MAX_TIME_NS: Final = 2**63 - 1
_INVALID_ARGUMENT: Final = 3


class MalformedExport(ValueError):
    """The body is not an ExportTraceServiceRequest; sending it again cannot help."""


class ExportTooLarge(ValueError):
    """The body is larger than the limit, as sent or once decompressed."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"an export may have {limit_bytes} bytes, before and after decompression")
        self.limit_bytes = limit_bytes


class Export(msgspec.Struct, frozen=True):
    """The usable spans of one body, and how many were not."""

    spans: list[Span]
    num_rejected: int = 0


def inflate(body: bytes, limit_bytes: int) -> bytes:
    """Undo gzip without ever holding more than ``limit_bytes``; raises MalformedExport, ExportTooLarge."""
    stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        plain = stream.decompress(body, limit_bytes + 1)
    except zlib.error as error:
        raise MalformedExport("the body is not gzip") from error
    if len(plain) > limit_bytes:
        raise ExportTooLarge(limit_bytes)
    if not stream.eof:
        raise MalformedExport("the gzip stream is cut off")
    return plain


def parse(body: bytes) -> Export:
    """Read an ExportTraceServiceRequest; raises MalformedExport.

    An empty body is an empty export. One of unknown fields only is some other message, and refused.
    """
    request = ExportTraceServiceRequest()
    try:
        request.ParseFromString(body)
    except DecodeError as error:
        raise MalformedExport("the body is not an OTLP trace export") from error
    if body and not request.resource_spans:
        raise MalformedExport("the body holds no resource_spans")
    spans: list[Span] = []
    num_rejected = 0
    for group in request.resource_spans:
        resource = _attributes(group.resource.attributes)
        service, instance = text(resource, "service.name"), text(resource, "service.instance.id")
        for scope in group.scope_spans:
            for wire in scope.spans:
                if _is_usable(wire):
                    spans.append(_span(wire, service, instance))
                else:
                    num_rejected += 1
    return Export(spans, num_rejected)


def accepted(num_rejected: int = 0, reason: str = "") -> bytes:
    """The body of a 200. Rejected spans make it a partial success, which the sender must not retry."""
    response = ExportTraceServiceResponse()
    if num_rejected:
        response.partial_success.rejected_spans = num_rejected
        response.partial_success.error_message = reason
    return bytes(response.SerializeToString())


def refused(reason: str) -> bytes:
    """The body of a 4xx: a google.rpc.Status, as the specification asks for."""
    return bytes(Status(code=_INVALID_ARGUMENT, message=reason).SerializeToString())


def _is_usable(wire: trace_pb2.Span) -> bool:
    return (
        len(wire.trace_id) == 16
        and len(wire.span_id) == 8
        and any(wire.trace_id)
        and any(wire.span_id)
        and 0 < wire.start_time_unix_nano <= _MAX_TIME_NS
        and wire.end_time_unix_nano <= _MAX_TIME_NS
    )


def _span(wire: trace_pb2.Span, service: str, instance: str) -> Span:
    return Span(
        trace_id=wire.trace_id.hex(),
        span_id=wire.span_id.hex(),
        parent_id=wire.parent_span_id.hex() if len(wire.parent_span_id) == 8 else "",
        name=wire.name[:MAX_NAME_CHARS],
        service=service[:MAX_NAME_CHARS],
        instance=instance[:MAX_NAME_CHARS],
        start_ns=wire.start_time_unix_nano,
        end_ns=wire.end_time_unix_nano,
        is_error=wire.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
        status=wire.status.message[:MAX_VALUE_CHARS],
        attributes=_attributes(wire.attributes),
        events=[_event(event) for event in islice(wire.events, MAX_EVENTS)],
    )


def _event(wire: trace_pb2.Span.Event) -> Event:
    return Event(
        name=wire.name[:MAX_NAME_CHARS],
        time_ns=min(wire.time_unix_nano, _MAX_TIME_NS),
        attributes=_attributes(wire.attributes),
    )


def _attributes(pairs: Iterable[KeyValue]) -> Attributes:
    return {pair.key[:MAX_NAME_CHARS]: _value(pair.value) for pair in islice(pairs, MAX_ATTRIBUTES)}


def _value(value: AnyValue) -> Any:
    """Nesting needs no bound of its own: protobuf refuses more than 100 levels."""
    match value.WhichOneof("value"):
        case "string_value":
            return value.string_value[:MAX_VALUE_CHARS]
        case "bool_value":
            return value.bool_value
        case "int_value":
            return value.int_value
        case "double_value":
            return value.double_value
        case "bytes_value":
            return value.bytes_value[:MAX_VALUE_CHARS].hex()
        case "array_value":
            return [_value(item) for item in islice(value.array_value.values, MAX_ITEMS)]
        case "kvlist_value":
            return _attributes(value.kvlist_value.values)
        case _:
            return None

"""Spans as OTLP bytes: the protobuf message ``ExportTraceServiceRequest``, written directly.

The exporter's own encoder builds a Python object for every attribute of every span first, which cost more
than everything else that tracing does (ADR 11). Field numbers are those of opentelemetry-proto 1.x:
``trace/v1/trace.proto``, ``common/v1/common.proto``; a test reads the bytes with the generated classes.
"""

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import StatusCode
from opentelemetry.util.types import AttributeValue

_MAX_CACHED_VALUE: Final = 64
_LOCAL_PARENT: Final = 0x100
_REMOTE_PARENT: Final = 0x300
"""Field 16: bit 8 says that bit 9 tells."""

_pack_double: Final = struct.Struct("<d").pack
_pack_times: Final = struct.Struct("<BQBQ").pack
_pack_flags: Final = struct.Struct("<HI").pack
_KINDS: Final = tuple(bytes((0x30, number)) for number in range(1, 6))
"""Field 6, by the API's SpanKind (internal, server, client, producer, consumer): OTLP counts from 1."""


class DirectExporter(OTLPSpanExporter):
    """The standard exporter (endpoint, headers, certificates, compression, retries by ``OTEL_*``) with our
    encoding. Its HTTP client has no public name: a new release must be tried, and a test does."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self._shutdown:
            return SpanExportResult.FAILURE
        result = self._client.export(encode(spans))
        return SpanExportResult.SUCCESS if result.success else SpanExportResult.FAILURE


def encode(spans: Sequence[ReadableSpan]) -> bytes:
    """Spans of one process: one resource, one scope. Raises TypeError for a value that OTLP does not know."""
    if not spans:
        return b""
    resource, scope = spans[0].resource, spans[0].instrumentation_scope
    body = [_message(0x0A, b"".join(_attributes(resource.attributes.items())))]
    scope_spans = [_message(0x0A, b"" if scope is None else _text(0x0A, scope.name))]
    scope_spans += [_message(0x12, _span(span)) for span in spans]
    body.append(_message(0x12, b"".join(scope_spans)))
    return _message(0x0A, b"".join(body))


def _span(span: ReadableSpan) -> bytes:
    context, parent = span.context, span.parent
    assert context is not None
    parts = [b"\x0a\x10", context.trace_id.to_bytes(16), b"\x12\x08", context.span_id.to_bytes(8)]
    if context.trace_state:
        parts.append(_text(0x1A, context.trace_state.to_header()))
    flags = _LOCAL_PARENT
    if parent is not None:
        parts += (b"\x22\x08", parent.span_id.to_bytes(8))
        if parent.is_remote:
            flags = _REMOTE_PARENT
    parts.append(_name(span.name))
    parts.append(_KINDS[span.kind.value])
    parts.append(_pack_times(0x39, span.start_time or 0, 0x41, span.end_time or 0))
    if span.attributes:
        parts += [_message(0x4A, attribute) for attribute in _key_values(span.attributes.items())]
    code = span.status.status_code
    parts.append(b"\x7a\0" if code is StatusCode.UNSET else _status(code.value, span.status.description))
    parts.append(_pack_flags(0x0185, flags))
    return b"".join(parts)


def _status(code: int, description: str | None) -> bytes:
    return _message(0x7A, (_text(0x12, description) if description else b"") + bytes((0x18, code)))


def _attributes(items: Iterable[tuple[str, AttributeValue]]) -> list[bytes]:
    return [_message(0x0A, attribute) for attribute in _key_values(items)]


def _key_values(items: Iterable[tuple[str, AttributeValue]]) -> list[bytes]:
    return [
        _double(key, value)
        if type(value) is float
        else _cached(key, value, type(value) is bool)
        if type(value) is bool or (type(value) is str and len(value) <= _MAX_CACHED_VALUE)
        else _key(key) + _message(0x12, _any(value))
        for key, value in items
    ]


def _double(key: str, value: float) -> bytes:
    return _key(key) + b"\x12\x09\x21" + _pack_double(value)


@lru_cache(maxsize=4096)
def _cached(key: str, value: AttributeValue, _is_bool: bool) -> bytes:
    """Most text is one of few values: services, hops, workers. Request ids pass through and are evicted."""
    return _key(key) + _message(0x12, _any(value))


@lru_cache(maxsize=1024)
def _key(key: str) -> bytes:
    return _text(0x0A, key)


@lru_cache(maxsize=256)
def _name(name: str) -> bytes:
    return _text(0x2A, name)


def _any(value: Any) -> bytes:
    """An AnyValue."""
    match value:
        case bool():
            return bytes((0x10, value))
        case str():
            return _text(0x0A, value)
        case int():
            return b"\x18" + _varint(value & 0xFFFF_FFFF_FFFF_FFFF)
        case float():
            return b"\x21" + _pack_double(value)
        case list() | tuple():
            return _message(0x2A, b"".join(_message(0x0A, _any(item)) for item in value))
        case _:
            raise TypeError(f"no OTLP value: {type(value).__name__}")


def _text(tag: int, value: str) -> bytes:
    return _message(tag, value.encode("utf-8", "replace"))


def _message(tag: int, content: bytes) -> bytes:
    size = len(content)
    return (bytes((tag, size)) if size < 0x80 else bytes((tag,)) + _varint(size)) + content


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)

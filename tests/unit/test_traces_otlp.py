"""OTLP bodies, good and bad."""

import contextlib
import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from sub100_traces import otlp

LIMIT = 1 << 20


def export() -> ExportTraceServiceRequest:
    """One usable span of sub100-ingress."""
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    group.resource.attributes.add(key="service.name").value.string_value = "sub100-ingress"
    span = group.scope_spans.add().spans.add()
    span.trace_id = bytes(range(16))
    span.span_id = bytes(range(8))
    span.name = "chat"
    span.start_time_unix_nano = 10
    span.end_time_unix_nano = 30
    return request


def test_parse_reads_ids_times_resource_and_every_kind_of_value() -> None:
    request = export()
    span = request.resource_spans[0].scope_spans[0].spans[0]
    span.parent_span_id = b"\xff" * 8
    span.status.code = 2
    span.status.message = "worker_lost"
    span.attributes.add(key="text").value.string_value = "é"
    span.attributes.add(key="flag").value.bool_value = True
    span.attributes.add(key="count").value.int_value = -(2**63)
    span.attributes.add(key="ms").value.double_value = 1.5
    span.attributes.add(key="raw").value.bytes_value = b"\x01\xff"
    span.attributes.add(key="many").value.array_value.values.add().int_value = 3
    span.attributes.add(key="map").value.kvlist_value.values.add(key="k").value.string_value = "v"
    span.attributes.add(key="none")
    span.events.add(name="exception", time_unix_nano=20)
    [read] = otlp.parse(request.SerializeToString()).spans
    assert read.trace_id == "000102030405060708090a0b0c0d0e0f"
    assert (read.span_id, read.parent_id) == ("0001020304050607", "f" * 16)
    assert (read.service, read.name, read.start_ns, read.end_ns) == ("sub100-ingress", "chat", 10, 30)
    assert (read.is_error, read.status) == (True, "worker_lost")
    assert read.attributes == {
        "text": "é",
        "flag": True,
        "count": -(2**63),
        "ms": 1.5,
        "raw": "01ff",
        "many": [3],
        "map": {"k": "v"},
        "none": None,
    }
    assert [event.name for event in read.events] == ["exception"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("trace_id", b""),
        ("trace_id", bytes(16)),
        ("trace_id", b"x" * 17),
        ("span_id", b""),
        ("span_id", bytes(8)),
        ("start_time_unix_nano", 0),
        ("end_time_unix_nano", 2**64 - 1),
    ],
)
def test_parse_rejects_a_span_alone_when_its_id_or_time_is_impossible(field: str, value: object) -> None:
    request = export()
    request.resource_spans.append(export().resource_spans[0])
    setattr(request.resource_spans[0].scope_spans[0].spans[0], field, value)
    read = otlp.parse(request.SerializeToString())
    assert (len(read.spans), read.num_rejected) == (1, 1)


def test_parse_cuts_what_is_too_long() -> None:
    request = export()
    span = request.resource_spans[0].scope_spans[0].spans[0]
    span.name = "n" * 10_000
    for number in range(otlp.MAX_ATTRIBUTES + 5):
        span.attributes.add(key=f"k{number}").value.string_value = "v" * 10_000
    for _ in range(otlp.MAX_EVENTS + 5):
        span.events.add(name="e")
    [read] = otlp.parse(request.SerializeToString()).spans
    assert len(read.name) == otlp.MAX_NAME_CHARS
    assert len(read.attributes) == otlp.MAX_ATTRIBUTES
    assert {len(value) for value in read.attributes.values()} == {otlp.MAX_VALUE_CHARS}
    assert len(read.events) == otlp.MAX_EVENTS


def test_parse_takes_an_empty_body_as_an_empty_export() -> None:
    assert otlp.parse(b"") == otlp.Export([], 0)


@pytest.mark.parametrize("body", [b"garbage", b'{"resourceSpans": []}', b"\x00\x01\x02", b"\xa2\x06\x01x"])
def test_parse_refuses_what_is_no_export(body: bytes) -> None:
    with pytest.raises(otlp.MalformedExport):
        otlp.parse(body)


@given(st.binary(max_size=400))
def test_parse_raises_nothing_but_malformed_export_for_any_bytes(body: bytes) -> None:
    with contextlib.suppress(otlp.MalformedExport):
        otlp.parse(body)


def test_inflate_undoes_gzip() -> None:
    assert otlp.inflate(gzip.compress(b"x" * LIMIT), LIMIT) == b"x" * LIMIT


def test_inflate_stops_at_the_limit_when_the_body_is_a_bomb() -> None:
    with pytest.raises(otlp.ExportTooLarge):
        otlp.inflate(gzip.compress(b"x" * (LIMIT * 50)), LIMIT)


@pytest.mark.parametrize("body", [b"", b"plain", gzip.compress(b"whole")[:-4]])
def test_inflate_refuses_what_is_not_a_whole_gzip_stream(body: bytes) -> None:
    with pytest.raises(otlp.MalformedExport):
        otlp.inflate(body, LIMIT)


def test_accepted_says_nothing_of_rejects_when_there_are_none() -> None:
    assert otlp.accepted() == b""
    response = ExportTraceServiceResponse.FromString(otlp.accepted(3, "queue full"))
    assert (response.partial_success.rejected_spans, response.partial_success.error_message) == (
        3,
        "queue full",
    )

"""Our OTLP bytes say what the SDK's own encoder says of the same spans."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from sub100_shared import otlp
from sub100_shared.telemetry import Telemetry, extract, fail

VALUES = st.one_of(
    st.text(max_size=100).filter(lambda text: text.isprintable()),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.lists(st.text(alphabet="añ🙂", max_size=5), max_size=3),
)
ATTRIBUTES = st.dictionaries(st.text(alphabet="abc.é", min_size=1, max_size=200), VALUES, max_size=12)
REMOTE = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "vendor=opaque,other=1",
}


def both(spans: Any) -> tuple[ExportTraceServiceRequest, ExportTraceServiceRequest]:
    return ExportTraceServiceRequest.FromString(otlp.encode(spans)), encode_spans(spans)


@given(
    ATTRIBUTES, st.sampled_from(SpanKind), st.booleans(), st.sampled_from(["", "worker_lost"]), st.booleans()
)
def test_encoding_equals_the_sdks(
    attributes: dict[str, Any], kind: SpanKind, is_remote: bool, code: str, has_parent: bool
) -> None:
    exporter = InMemorySpanExporter()
    telemetry = Telemetry.create("cache", "c1", "local", {}, exporter=exporter)
    parent = extract(REMOTE) if is_remote else telemetry.start("chat", None) if has_parent else None
    span = telemetry.start("cache.process", parent, kind=kind, attributes=attributes, start_ns=5)
    if code:
        fail(span, code)
    span.end(2**62)
    telemetry.shutdown()
    ours, sdks = both(exporter.get_finished_spans())
    for found in (ours, sdks):
        for group in found.resource_spans:
            group.resource.attributes.sort(key=lambda attribute: attribute.key)
    assert ours == sdks


def test_encoding_groups_a_batch_under_one_resource() -> None:
    exporter = InMemorySpanExporter()
    telemetry = Telemetry.create("cache", "c1", "local", {}, exporter=exporter)
    for name in ("a", "b", "c"):
        telemetry.start(name, None).end()
    telemetry.shutdown()
    ours, _ = both(exporter.get_finished_spans())
    assert [span.name for span in ours.resource_spans[0].scope_spans[0].spans] == ["a", "b", "c"]
    assert len(ours.resource_spans) == len(ours.resource_spans[0].scope_spans) == 1


def test_encoding_refuses_a_value_that_otlp_does_not_know() -> None:
    exporter = InMemorySpanExporter()
    telemetry = Telemetry.create("cache", "c1", "local", {}, exporter=exporter)
    telemetry.start("a", None, attributes={"x": object()}).end()  # type: ignore[dict-item]
    telemetry.shutdown()
    with pytest.raises(TypeError, match="object"):
        otlp.encode(exporter.get_finished_spans())

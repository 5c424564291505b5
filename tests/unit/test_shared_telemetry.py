"""Sampling is decided once, where the request enters; what failed is kept all the same."""

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from sub100_shared.telemetry import Context, Span, Telemetry, extract, inject, is_sampled, keep

CLIENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"


class Process:
    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.telemetry = Telemetry.create("x", "x1", "local", {}, exporter=self._exporter)

    def exported(self) -> dict[str, ReadableSpan]:
        self.telemetry.shutdown()
        return {span.name: span for span in self._exporter.get_finished_spans()}


def enter(process: Process, parent: Context | None = None) -> Span:
    return process.telemetry.start("chat", parent, is_entry=True)


@pytest.fixture
def unsampled(monkeypatch: pytest.MonkeyPatch) -> Process:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    return Process()


def test_child_follows_its_parent_over_the_wire() -> None:
    ingress, worker = Process(), Process()
    root = enter(ingress)
    hop = ingress.telemetry.start("prefill.job", root)
    worker.telemetry.start("prefill.process", extract(inject(hop))).end()
    hop.end()
    root.end()
    mine, theirs = ingress.exported(), worker.exported()["prefill.process"]
    assert theirs.parent is not None
    assert mine["prefill.job"].context is not None
    assert theirs.parent.span_id == mine["prefill.job"].context.span_id
    assert {span.context.trace_id for span in (*mine.values(), theirs) if span.context} == {
        root.get_span_context().trace_id
    }


def test_unsampled_request_exports_nothing_and_says_so_downstream(unsampled: Process) -> None:
    root = enter(unsampled)
    hop = unsampled.telemetry.start("prefill.job", root)
    carrier = inject(hop)
    assert carrier["traceparent"].endswith("-00")
    worker = Process()  # samples whatever it may decide on: this it may not
    span = worker.telemetry.start("prefill.process", extract(carrier))
    assert not span.is_recording()
    for each in (span, hop, root):
        each.end()
    assert unsampled.exported() == {}
    assert worker.exported() == {}


def test_unsampled_request_that_is_kept_has_its_spans_with_their_ids(unsampled: Process) -> None:
    root = enter(unsampled)
    hop = unsampled.telemetry.start("prefill.job", root, attributes={"sub100.worker_id": "w"})
    told = inject(hop)["traceparent"].split("-")[2]
    for span in (root, hop):
        keep(span)
        span.end()
    found = unsampled.exported()
    assert set(found) == {"chat", "prefill.job"}
    kept = found["prefill.job"]
    assert dict(kept.attributes or {}) == {
        "sub100.worker_id": "w",
        "messaging.system": "nats",
        "messaging.operation.type": "send",
        "messaging.operation.name": "publish",
        "messaging.destination.template": "prefill.job.<worker>",
    }
    assert kept.context is not None
    assert f"{kept.context.span_id:016x}" == told


@pytest.mark.parametrize(("flag", "sampled"), [("01", True), ("00", False)])
def test_entry_honours_the_callers_decision_by_default(flag: str, sampled: bool) -> None:
    process = Process()
    span = enter(process, extract({"traceparent": f"{CLIENT}-{flag}"}))
    assert is_sampled(span) is sampled
    span.end()
    assert len(process.exported()) == sampled


def test_entry_asks_the_configured_sampler_not_the_caller(unsampled: Process) -> None:
    span = enter(unsampled, extract({"traceparent": f"{CLIENT}-01", "tracestate": "a=b"}))
    assert not is_sampled(span)
    assert inject(span)["tracestate"] == "a=b"
    assert f"{span.get_span_context().trace_id:032x}" == CLIENT.split("-")[1]


def test_no_endpoint_costs_no_span_and_no_header() -> None:
    telemetry = Telemetry.create("x", "x1", "local", {})
    span = telemetry.start("chat", None, is_entry=True)
    assert not span.is_recording()
    assert inject(span) == {}
    keep(span)
    span.end()
    telemetry.shutdown()

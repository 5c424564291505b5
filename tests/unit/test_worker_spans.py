"""The worker's part of a trace, through OpenTelemetry's own SDK."""

from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from sub100_engine.api import Output
from sub100_engine.worker.spans import JobSpans
from sub100_proto import tokens
from sub100_proto.budget import Budget
from sub100_proto.jobs import DecodeJob
from sub100_proto.sampling import Sampling
from sub100_shared import semconv
from sub100_shared.telemetry import Telemetry, extract, inject

SECRET_TOKENS = [31_337, 31_338]


class Clock:
    def __init__(self) -> None:
        self.ms = 1000.0

    def __call__(self) -> float:
        return self.ms


class Traced:
    """Job spans under a remote parent, and what was exported."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._telemetry = Telemetry.create("decode", "w1", "local", {}, exporter=self._exporter)
        self.clock = Clock()
        self.spans = JobSpans(self._telemetry, "decode", self.clock)
        self.parent = self._telemetry.start("decode.job", None, kind=SpanKind.PRODUCER)

    def open(self) -> None:
        job = DecodeJob(
            attempt="a",
            request_id="r1",
            events="e",
            model="m",
            prompt=tokens.pack(SECRET_TOKENS),
            sampling=Sampling(max_tokens=4),
            budget=Budget(total_ms=100, remaining_ms=60, allotted_ms=20),
            epoch=1,
        )
        self.spans.open(job, extract(inject(self.parent)))

    def exported(self) -> dict[str, ReadableSpan]:
        self._telemetry.shutdown()
        found: Sequence[ReadableSpan] = self._exporter.get_finished_spans()
        return {span.name: span for span in found}


@pytest.fixture
def traced() -> Traced:
    return Traced()


def ms(span: ReadableSpan) -> float:
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.end_time - span.start_time) / 1e6


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def test_spans_of_a_job_hang_under_the_sender_and_hold_the_engines_durations(traced: Traced) -> None:
    traced.open()
    traced.spans.on_output(
        Output(
            attempt="a",
            token_ids=[1],
            queue_ms=2.0,
            transfer_ms=3.0,
            compute_ms=5.0,
            transferred_tokens=2,
        )
    )
    traced.spans.on_output(Output(attempt="a", token_ids=[2, 3], finish_reason="length"))
    traced.clock.ms += 25.5
    traced.spans.close("a")
    spans = traced.exported()

    job = spans[semconv.DECODE_SERVE]
    assert job.kind == SpanKind.CONSUMER
    assert job.parent is not None
    assert job.context is not None
    assert job.parent.span_id == traced.parent.get_span_context().span_id
    assert job.context.trace_id == traced.parent.get_span_context().trace_id
    assert (
        attributes(job).items()
        >= {
            semconv.REQUEST_ID: "r1",
            semconv.INPUT_TOKENS: 2,
            semconv.OUTPUT_TOKENS: 3,
            semconv.ALLOTTED_MS: 20.0,
            semconv.SPENT_MS: 25.5,
            semconv.TRANSFERRED_TOKENS: 2,
        }.items()
    )
    durations = {name: round(ms(spans[name]), 3) for name in spans if name != job.name}
    assert durations == {semconv.ENGINE_QUEUE: 2.0, semconv.KV_TRANSFER: 3.0, semconv.ENGINE_COMPUTE: 5.0}
    for name in durations:
        parent = spans[name].parent
        assert parent is not None
        assert parent.span_id == job.context.span_id


def test_span_of_a_failed_job_has_its_code_and_no_prompt(traced: Traced) -> None:
    traced.open()
    traced.spans.close("a", "kv_expired")
    job = traced.exported()[semconv.DECODE_SERVE]
    assert job.status.status_code == StatusCode.ERROR
    assert attributes(job)["error.type"] == "kv_expired"
    assert "31337" not in repr((job.name, job.status.description, attributes(job)))


def test_span_of_an_aborted_job_is_cancelled_and_no_error(traced: Traced) -> None:
    traced.open()
    traced.spans.close("a", "cancelled")
    traced.spans.close("a")
    job = traced.exported()[semconv.DECODE_SERVE]
    assert job.status.status_code != StatusCode.ERROR
    assert attributes(job)[semconv.CANCELLED] is True

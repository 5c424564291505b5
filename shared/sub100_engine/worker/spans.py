"""The worker's part of a trace: one span per job, and the engine's phases under it."""

from typing import Final

from sub100_proto import subjects, tokens
from sub100_proto.jobs import Job
from sub100_shared import semconv
from sub100_shared.clock import Clock
from sub100_shared.telemetry import Context, Span, SpanKind, Telemetry, fail, unix_ns

from ..api import Output

_MIN_PHASE_MS: Final = 0.05
"""A phase too short to see on a waterfall is not worth its span."""

_NAMES: Final = {"prefill": semconv.PREFILL_SERVE, "decode": semconv.DECODE_SERVE}


class _Open:
    __slots__ = ("allotted_ms", "num_tokens", "span", "start_ns", "started_ms")

    def __init__(self, span: Span, start_ns: int, started_ms: float, allotted_ms: float) -> None:
        self.span = span
        self.start_ns = start_ns
        self.started_ms = started_ms
        self.allotted_ms = allotted_ms
        self.num_tokens = 0


class JobSpans:
    """Opened with the claim, closed with the last output; no prompt text, counts and durations only."""

    def __init__(self, telemetry: Telemetry, role: subjects.Role, clock: Clock) -> None:
        self._telemetry = telemetry
        self._role = role
        self._clock = clock
        self._open: dict[str, _Open] = {}

    def open(self, job: Job, parent: Context) -> None:
        start_ns = unix_ns()
        span = self._telemetry.start(
            _NAMES[self._role],
            parent,
            kind=SpanKind.CONSUMER,
            attributes={
                semconv.REQUEST_ID: job.request_id,
                semconv.MODEL: job.model,
                semconv.INPUT_TOKENS: tokens.count(job.prompt),
                semconv.HOP: self._role,
            },
            start_ns=start_ns,
        )
        self._open[job.attempt] = _Open(span, start_ns, self._clock(), job.budget.allotted_ms)

    def on_output(self, output: Output) -> None:
        """The first output carries the engine's durations: they become child spans."""
        opened = self._open.get(output.attempt)
        if opened is None or not opened.span.is_recording():
            return
        is_first = opened.num_tokens == 0
        opened.num_tokens += len(output.token_ids)
        if output.num_drafted:
            opened.span.set_attributes(
                {semconv.DRAFTED_TOKENS: output.num_drafted, semconv.ACCEPTED_TOKENS: output.num_accepted}
            )
        if not is_first:
            return
        at_ns = opened.start_ns
        for name, duration_ms in (
            (semconv.ENGINE_QUEUE, output.queue_ms),
            (semconv.KV_TRANSFER, output.transfer_ms),
            (semconv.ENGINE_COMPUTE, output.compute_ms),
        ):
            if duration_ms >= _MIN_PHASE_MS:
                self._telemetry.record(name, opened.span, start_ns=at_ns, duration_ms=duration_ms)
                at_ns += int(duration_ms * 1e6)
        opened.span.set_attributes(
            {
                semconv.CACHED_TOKENS: output.cached_tokens,
                semconv.TRANSFERRED_TOKENS: output.transferred_tokens,
            }
        )

    def close(self, attempt: str, code: str = "") -> None:
        """End the job's span; ``code`` non-empty: it failed or was cancelled."""
        opened = self._open.pop(attempt, None)
        if opened is None:
            return
        span = opened.span
        if span.is_recording():
            spent_ms = self._clock() - opened.started_ms
            span.set_attributes(
                {
                    semconv.ALLOTTED_MS: round(opened.allotted_ms, 3),
                    semconv.SPENT_MS: round(spent_ms, 3),
                    semconv.OUTPUT_TOKENS: opened.num_tokens,
                }
            )
            if code == "cancelled":
                span.set_attribute(semconv.CANCELLED, True)
            elif code:
                fail(span, code)
        span.end()

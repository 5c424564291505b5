"""One served request in one line, read off ingress's root span."""

import msgspec

from sub100_shared import semconv

from .spans import Span, number, text


class RequestSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the list. What the span did not say is None or empty, never guessed."""

    request_id: str
    trace_id: str
    span_id: str
    start_ns: int
    duration_ms: float
    tenant: str = ""
    model: str = ""
    region: str = ""
    tier: str = ""
    status: int | None = None
    ttft_ms: float | None = None
    budget_ms: float | None = None
    blame: str = ""
    error: str = ""

    @property
    def is_over_budget(self) -> bool:
        return self.ttft_ms is not None and self.budget_ms is not None and self.ttft_ms > self.budget_ms


def summarise(span: Span) -> RequestSummary | None:
    """The summary if ``span`` is a request's root, else None.

    The root is the span that names a request and is no hop of one. Having no parent is not the sign:
    a client's own ``traceparent`` gives the root a parent that we never see, and one trace may hold
    several requests.
    """
    attributes = span.attributes
    request_id = text(attributes, semconv.REQUEST_ID)
    if not request_id or semconv.HOP in attributes:
        return None
    status = number(attributes, semconv.HTTP_STATUS)
    return RequestSummary(
        request_id=request_id,
        trace_id=span.trace_id,
        span_id=span.span_id,
        start_ns=span.start_ns,
        duration_ms=span.duration_ms,
        tenant=text(attributes, semconv.TENANT),
        model=text(attributes, semconv.MODEL),
        region=text(attributes, semconv.REGION),
        tier=text(attributes, semconv.TIER),
        status=int(status) if status is not None and 0 <= status < 1000 else None,
        ttft_ms=number(attributes, semconv.TTFT_MS),
        budget_ms=number(attributes, semconv.BUDGET_TOTAL_MS),
        blame=text(attributes, semconv.BLAME),
        error=text(attributes, semconv.CODE) or ("error" if span.is_error else ""),
    )

"""One served request in one line, read off ingress's root span."""

from typing import Final

import msgspec

from sub100_shared import semconv

from .spans import Attributes, Span, number, text

MAX_MS: Final = 86_400_000.0
"""Longer durations are some clock's accident; they would only spoil the rulers."""

MAX_LABEL_CHARS: Final = 128
"""Ids and names are cut to this; ours are far shorter."""


class RequestSummary(msgspec.Struct, frozen=True):
    """A line of the list. What the span did not say is None or empty, never guessed.

    ``ttft_ms`` counts from the arrival at ingress, ``network_ms`` is what passed before. ``worker`` (whose
    token came first) and ``path`` (``hop:ms`` of the critical path, by hop, comma separated) are known once
    the request's hops have arrived. ``seq`` rises with the order of arrival; 0 before the store has given
    one.
    """

    seq: int
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
    network_ms: float = 0.0
    num_attempts: int = 0
    worker: str = ""
    path: str = ""

    @property
    def spent_ms(self) -> float | None:
        """Of the budget: network and TTFT together; None if no content came."""
        return None if self.ttft_ms is None else self.network_ms + self.ttft_ms

    @property
    def is_over_budget(self) -> bool:
        spent_ms = self.spent_ms
        return spent_ms is not None and self.budget_ms is not None and spent_ms > self.budget_ms

    @property
    def hops(self) -> list[tuple[str, float]]:
        """``path`` taken apart."""
        pairs = (piece.rpartition(":") for piece in self.path.split(",") if piece)
        return [(hop, float(ms)) for hop, _, ms in pairs]


def summarise(span: Span) -> RequestSummary | None:
    """The summary if ``span`` is a request's root, else None.

    The root is the span that names a request and is no hop of one. Having no parent is not the sign:
    a client's own ``traceparent`` gives the root a parent that we never see, and one trace may hold
    several requests.
    """
    attributes = span.attributes
    request_id = label(attributes, semconv.REQUEST_ID)
    if not request_id or semconv.HOP in attributes:
        return None
    status = number(attributes, semconv.HTTP_STATUS)
    attempts = number(attributes, semconv.ATTEMPTS) or 0.0
    return RequestSummary(
        seq=0,
        request_id=request_id,
        trace_id=span.trace_id,
        span_id=span.span_id,
        start_ns=span.start_ns,
        duration_ms=min(span.duration_ms, MAX_MS),
        tenant=label(attributes, semconv.TENANT),
        model=label(attributes, semconv.MODEL),
        region=label(attributes, semconv.REGION),
        tier=label(attributes, semconv.TIER),
        status=int(status) if status is not None and 0 <= status < 1000 else None,
        ttft_ms=duration(attributes, semconv.TTFT_MS),
        budget_ms=duration(attributes, semconv.BUDGET_TOTAL_MS),
        blame=label(attributes, semconv.BLAME),
        error=label(attributes, semconv.CODE) or ("error" if span.is_error else ""),
        network_ms=duration(attributes, semconv.NETWORK_MS) or 0.0,
        num_attempts=int(min(max(attempts, 0), 1000)),
    )


def label(attributes: Attributes, name: str) -> str:
    return text(attributes, name)[:MAX_LABEL_CHARS]


def duration(attributes: Attributes, name: str) -> float | None:
    """Milliseconds in 0..MAX_MS, or None: a negative or absurd one is somebody's broken clock."""
    value = number(attributes, name)
    return value if value is not None and 0 <= value <= MAX_MS else None

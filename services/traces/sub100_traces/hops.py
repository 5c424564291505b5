"""The ledger as the spans tell it: ingress's hop spans, and the critical path that they leave. Pure.

All numbers come from ingress's own clock (attributes of spans that ingress made), so no skew touches them.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from sub100_shared import semconv

from .spans import Span
from .summary import RequestSummary, duration, label

ORDER: Final = (
    semconv.HOP_NETWORK,
    semconv.HOP_INGRESS,
    semconv.HOP_CACHE,
    semconv.HOP_SCHEDULE,
    semconv.HOP_PREFILL,
    semconv.HOP_DECODE,
)
"""The hops that have a colour, in the order of a request; others are shown as "other"."""


class Hop(msgspec.Struct, frozen=True, kw_only=True):
    """One interval between ingress and a callee."""

    span_id: str
    name: str
    spent_ms: float
    allotted_ms: float | None
    bus_ms: float
    is_critical: bool
    worker: str
    start_ns: int

    @property
    def overrun_ms(self) -> float:
        return 0.0 if self.allotted_ms is None else max(0.0, self.spent_ms - self.allotted_ms)


class Path(msgspec.Struct, frozen=True, kw_only=True):
    """What the first token waited for. ``spent_ms`` sums to network + TTFT (where content came)."""

    spent_ms: dict[str, float]
    hops: list[Hop]
    """The critical ones, by start."""

    @property
    def worker(self) -> str:
        """The last worker on the path: the first token is its."""
        return next((hop.worker for hop in reversed(self.hops) if hop.worker), "")

    @property
    def encoded(self) -> str:
        return ",".join(f"{name}:{ms:.2f}" for name, ms in self.spent_ms.items())


def read(span: Span) -> Hop | None:
    """The hop that ``span`` accounts for; None for every other span (a worker's own included)."""
    attributes = span.attributes
    name, spent_ms = label(attributes, semconv.HOP), duration(attributes, semconv.SPENT_MS)
    if not name or spent_ms is None or semconv.CRITICAL not in attributes:
        return None
    return Hop(
        span_id=span.span_id,
        name=name,
        spent_ms=spent_ms,
        allotted_ms=duration(attributes, semconv.ALLOTTED_MS),
        bus_ms=min(duration(attributes, semconv.BUS_MS) or 0.0, spent_ms),
        is_critical=attributes[semconv.CRITICAL] is True,
        worker=label(attributes, semconv.WORKER),
        start_ns=span.start_ns,
    )


def path(request: RequestSummary, hops: Sequence[Hop]) -> Path:
    """The critical hops by name, and ingress's own time: what none of them explains of the TTFT."""
    critical = sorted((hop for hop in hops if hop.is_critical), key=lambda hop: hop.start_ns)
    spent_ms: dict[str, float] = {}
    if request.network_ms:
        spent_ms[semconv.HOP_NETWORK] = request.network_ms
    if request.ttft_ms is not None:
        known_ms = sum(hop.spent_ms for hop in critical if hop.name != semconv.HOP_INGRESS)
        spent_ms[semconv.HOP_INGRESS] = max(0.0, request.ttft_ms - known_ms)
    for hop in critical:
        if hop.name != semconv.HOP_INGRESS:
            spent_ms[hop.name] = spent_ms.get(hop.name, 0.0) + hop.spent_ms
    return Path(spent_ms=spent_ms, hops=critical)

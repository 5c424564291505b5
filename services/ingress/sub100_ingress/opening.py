"""The start of an exchange: how much time it has, split over the hops, and its root span."""

import math
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from starlette.datastructures import Headers

from sub100_shared import semconv
from sub100_shared.clock import Clock
from sub100_shared.errors import ClientError
from sub100_shared.ledger import Ledger
from sub100_shared.telemetry import SpanKind, Telemetry, extract, unix_ns

from .exchange import Exchange
from .keys import Tenant
from .openai_request import GenerationRequest

BUDGET_HEADER: Final = "x-sub100-budget-ms"
"""The client's: the whole budget of this request, in milliseconds."""

NETWORK_HEADER: Final = "x-sub100-network-ms"
"""The edge's: what the network took before the request reached it, and will take for the first byte back."""

MAX_BUDGET_MS: Final = 600_000.0
_MAX_NETWORK_MS: Final = 10_000.0
_TRACE_HEADERS: Final = ("traceparent", "tracestate")


class Opener(msgspec.Struct, frozen=True, kw_only=True):
    """``split`` and ``budget_ms`` are the deployment's; a tenant may have its own, a request its total.

    ``trust_edge``: an edge stands before this ingress, which alone sets NETWORK_HEADER (it removes what a
    client sent); without one the header is ignored.
    """

    telemetry: Telemetry
    clock: Clock
    region: str
    budget_ms: float
    split: Mapping[str, float]
    trust_edge: bool = False

    def open(
        self,
        headers: Headers,
        request: GenerationRequest,
        tenant: Tenant,
        *,
        request_id: str,
        arrived_at_ms: float,
        operation: str,
        route: str,
    ) -> Exchange:
        """Raises ClientError ``invalid_value`` for a budget that is none."""
        total_ms = _number(headers, BUDGET_HEADER, low=1.0, high=MAX_BUDGET_MS, refuse=_refuse)
        network_ms = None
        if self.trust_edge:
            network_ms = _number(headers, NETWORK_HEADER, low=0.0, high=_MAX_NETWORK_MS, refuse=None)
        ledger = Ledger(
            self.clock,
            total_ms=total_ms or tenant.budget_ms or self.budget_ms,
            split=tenant.allotments or self.split,
            network_ms=network_ms or 0.0,
            arrived_at_ms=arrived_at_ms,
        )
        carrier = {name: headers[name] for name in _TRACE_HEADERS if name in headers}
        span = self.telemetry.start(
            operation,
            extract(carrier) if carrier else None,
            kind=SpanKind.SERVER,
            attributes={
                semconv.REQUEST_ID: request_id,
                semconv.TENANT: tenant.name,
                semconv.MODEL: request.model,
                semconv.OPERATION: operation,
                semconv.PROVIDER: "sub100",
                semconv.STREAM: request.stream,
                semconv.TEMPERATURE: request.sampling.temperature,
                semconv.TOP_P: request.sampling.top_p,
                semconv.BUDGET_TOTAL_MS: ledger.total_ms,
                semconv.HTTP_ROUTE: route,
                semconv.REGION: self.region,
            },
            start_ns=unix_ns() - int(ledger.elapsed_ms() * 1e6),
            is_entry=True,
        )
        if ledger.network_ms:
            span.set_attribute(semconv.NETWORK_MS, ledger.network_ms)
        return Exchange(request_id=request_id, tenant=tenant, request=request, ledger=ledger, span=span)


def _number(
    headers: Headers, name: str, *, low: float, high: float, refuse: Callable[[str, str], None] | None
) -> float | None:
    """The header's number within its bounds; None without one, or for a bad one where nobody is to blame."""
    text = headers.get(name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if low <= value <= high:
        return value
    if refuse is not None:
        refuse(name, f"must be a number from {low:g} to {high:g}")
    return None


def _refuse(name: str, message: str) -> None:
    raise ClientError("invalid_value", f"{name} {message}", param=name)

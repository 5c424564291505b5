"""The metrics of requests: recorded once, when an exchange is closed, from its ledger. Nothing per token."""

from collections.abc import Sequence
from typing import Final

from sub100_shared import catalog, semconv
from sub100_shared.errors import CLIENT_CODES, EVICTED_CODES, REFUSED_CODES
from sub100_shared.ledger import Segment
from sub100_shared.metrics import Metrics

from .exchange import Exchange

CANCELLED: Final = "cancelled"
OTHER: Final = "other"

_OUTCOMES: Final = {
    "": "ok",
    CANCELLED: "cancelled",
    **dict.fromkeys(CLIENT_CODES, "client_error"),
    **{code: "limited" if status == 429 else "refused" for code, status in REFUSED_CODES.items()},
    **dict.fromkeys(EVICTED_CODES, "failed"),
}
"""limited: a limit that the tenant was told of, or asked for. refused and failed are the service's fault."""

_GENERATED: Final = frozenset({semconv.TIER_WARM, semconv.TIER_COLD})


def outcome(code: str) -> tuple[str, str]:
    """Outcome and code as labels; a code that is not ours (a worker's word) is ``other``."""
    known = _OUTCOMES.get(code)
    return ("failed", OTHER) if known is None else (known, code)


class RequestMetrics:
    """``model`` is the one model that this ingress serves; ``with_tenants`` False drops what names them."""

    def __init__(self, metrics: Metrics, *, model: str, with_tenants: bool) -> None:
        self._model = model
        self._ttft = metrics.histogram(catalog.TIME_TO_FIRST_TOKEN)
        self._tpot = metrics.histogram(catalog.TIME_PER_OUTPUT_TOKEN)
        self._duration = metrics.histogram(catalog.REQUEST_DURATION)
        self._usage = metrics.histogram(catalog.TOKEN_USAGE)
        self._ended = metrics.counter(catalog.REQUESTS_ENDED)
        self._lost = metrics.counter(catalog.ATTEMPTS_LOST)
        self._replaced = metrics.counter(catalog.REPLACEMENTS)
        self._judged = metrics.counter(catalog.BUDGET_JUDGED)
        self._spent = metrics.histogram(catalog.HOP_SPENT)
        self._allotted = metrics.counter(catalog.HOP_ALLOTTED)
        self._overrun = metrics.counter(catalog.HOP_OVERRUN)
        self._overruns = metrics.counter(catalog.HOP_OVERRUNS)
        self._bus = metrics.histogram(catalog.HOP_BUS)
        self._prediction = metrics.histogram(catalog.PREDICTION_ERROR)
        self._prompt = metrics.counter(catalog.PROMPT_TOKENS)
        self._cache = metrics.counter(catalog.CACHE_ASKED)
        self._tenants = _TenantMetrics(metrics) if with_tenants else None

    def refused(self, code: str) -> None:
        """A request that ended before it became an exchange."""
        self._ended.add(1, *outcome(code), semconv.TIER_NONE)

    def record(self, ex: Exchange, path: Sequence[Segment], blame: str) -> None:
        """Count an exchange that is over; ``path`` is its critical path."""
        ledger = ex.ledger
        what, code = outcome(ex.code)
        operation = semconv.REQUEST_COMPLETION if ex.request.messages is None else semconv.REQUEST_CHAT
        of_model = (operation, semconv.PROVIDER_SUB100, self._model)
        elapsed_ms = ledger.elapsed_ms() if ex.answered_ms is None else ex.answered_ms

        self._ended.add(1, what, code, ex.tier)
        self._duration.record(elapsed_ms / 1e3, *of_model, code)
        if ex.num_prompt_tokens:
            self._usage.record(ex.num_prompt_tokens, *of_model, "input")
        if ex.num_completion_tokens:
            self._usage.record(ex.num_completion_tokens, *of_model, "output")
        if ex.cache_outcome:
            self._cache.add(1, ex.cache_outcome)
        for lost in ex.losses:
            self._lost.add(1, outcome(lost)[1])
        if ex.num_attempts > 1:
            self._replaced.add(ex.num_attempts - 1)
        if ex.tier in _GENERATED:
            self._prompt.add(ex.num_cached_tokens, "cached")
            self._prompt.add(max(0, ex.num_prompt_tokens - ex.num_cached_tokens), "computed")

        if ledger.ttft_ms is not None:
            self._record_first_token(ex, ledger.ttft_ms, of_model, blame)
            if what == "ok" and ex.tier in _GENERATED and ex.num_completion_tokens > 1 and ex.request.stream:
                after_first_ms = elapsed_ms - ledger.ttft_ms
                self._tpot.record(after_first_ms / (ex.num_completion_tokens - 1) / 1e3, *of_model)
        self._record_hops(ex, path)
        if self._tenants is not None:
            self._tenants.record(ex, what, is_missed=bool(blame))

    def _record_first_token(
        self, ex: Exchange, ttft_ms: float, of_model: tuple[str, str, str], blame: str
    ) -> None:
        stream = "true" if ex.request.stream else "false"
        self._ttft.record(ttft_ms / 1e3, *of_model, ex.tier, stream)
        self._judged.add(1, "missed" if blame else "kept", blame, ex.tier, stream)
        if ex.num_attempts == 1 and ex.placed_at_ms is not None:
            actual_ms = ttft_ms - ex.placed_at_ms
            self._prediction.record((ex.predicted_ttft_ms - actual_ms) / 1e3)

    def _record_hops(self, ex: Exchange, path: Sequence[Segment]) -> None:
        """The hops before the first content byte (all, if there was none); ingress's own pieces are one."""
        ledger = ex.ledger
        until_ms = float("inf") if ledger.ttft_ms is None else ledger.ttft_ms
        critical = {id(segment.hop) for segment in path if segment.hop is not None}
        own_ms = 0.0
        for segment in path:
            if segment.hop is None:
                own_ms += segment.duration_ms
        self._record_hop(semconv.HOP_INGRESS, own_ms, ledger.allotted_ms(semconv.HOP_INGRESS), "true")
        if ledger.network_ms:
            allotted_ms = ledger.allotted_ms(semconv.HOP_NETWORK)
            self._record_hop(semconv.HOP_NETWORK, ledger.network_ms, allotted_ms, "true")
        for hop in ledger.hops:
            if hop.name == semconv.HOP_DECODE or hop.end_ms is None or hop.end_ms > until_ms:
                continue
            self._record_hop(
                hop.name, hop.spent_ms, hop.allotted_ms, "true" if id(hop) in critical else "false"
            )
            if hop.own_ms is not None:
                self._bus.record(hop.bus_ms / 1e3, hop.name)

    def _record_hop(self, name: str, spent_ms: float, allotted_ms: float, is_critical: str) -> None:
        self._spent.record(spent_ms / 1e3, name, is_critical)
        self._allotted.add(allotted_ms / 1e3, name)
        if spent_ms > allotted_ms:
            self._overrun.add((spent_ms - allotted_ms) / 1e3, name)
            self._overruns.add(1, name)


class _TenantMetrics:
    """What names tenants, by their names in the key file."""

    def __init__(self, metrics: Metrics) -> None:
        self._requests = metrics.counter(catalog.TENANT_REQUESTS)
        self._missed = metrics.counter(catalog.TENANT_MISSES)
        self._tokens = metrics.counter(catalog.TENANT_TOKENS)

    def record(self, ex: Exchange, outcome: str, *, is_missed: bool) -> None:
        tenant = ex.tenant.name
        self._requests.add(1, tenant, outcome)
        if is_missed:
            self._missed.add(1, tenant)
        if ex.num_prompt_tokens:
            self._tokens.add(ex.num_prompt_tokens, tenant, "input")
        if ex.num_completion_tokens:
            self._tokens.add(ex.num_completion_tokens, tenant, "output")

"""Names of spans, attributes and hops, in one place.

OpenTelemetry semantic conventions 1.38 (messaging, GenAI) where they have a name; ours start with
``sub100.``. No ids in span names; no prompt text in attributes.
"""

from collections.abc import Mapping
from typing import Final

# spans
REQUEST_CHAT: Final = "chat"
REQUEST_COMPLETION: Final = "text_completion"
CACHE_LOOKUP: Final = "cache.lookup"
CACHE_SERVE: Final = "cache.process"
CACHE_JUDGE: Final = "cache.judge"
SCHEDULE: Final = "scheduler.place"
SCHEDULE_SERVE: Final = "scheduler.process"
PREFILL: Final = "prefill.job"
PREFILL_SERVE: Final = "prefill.process"
DECODE: Final = "decode.job"
DECODE_SERVE: Final = "decode.process"
ENGINE_QUEUE: Final = "engine.queue"
ENGINE_COMPUTE: Final = "engine.compute"
KV_TRANSFER: Final = "kv.transfer"

# hops of the budget
HOP_NETWORK: Final = "network"
HOP_INGRESS: Final = "ingress"
HOP_CACHE: Final = "cache"
HOP_SCHEDULE: Final = "schedule"
HOP_PREFILL: Final = "prefill"
HOP_DECODE: Final = "decode"
HOP_LEAD: Final = "lead"
"""The dispatch waited for a look-up that had not answered when it left."""

HOP_JOIN: Final = "join"
"""Another request's generation was waited for."""


# attributes
REQUEST_ID: Final = "sub100.request_id"
TENANT: Final = "sub100.tenant"
REGION: Final = "sub100.region"
TIER: Final = "sub100.tier"
BLAME: Final = "sub100.blame"
HOP: Final = "sub100.hop"
BUDGET_TOTAL_MS: Final = "sub100.budget.total_ms"
NETWORK_MS: Final = "sub100.network_ms"
TTFT_MS: Final = "sub100.ttft_ms"
ALLOTTED_MS: Final = "sub100.allotted_ms"
SPENT_MS: Final = "sub100.spent_ms"
OVERRUN_MS: Final = "sub100.overrun_ms"
BUS_MS: Final = "sub100.bus_ms"
CRITICAL: Final = "sub100.critical"
ATTEMPT: Final = "sub100.attempt"
WORKER: Final = "sub100.worker_id"
CACHED_TOKENS: Final = "sub100.kv.cached_tokens"
TRANSFERRED_TOKENS: Final = "sub100.kv.transferred_tokens"
DRAFTED_TOKENS: Final = "sub100.speculative.drafted_tokens"
ACCEPTED_TOKENS: Final = "sub100.speculative.accepted_tokens"
PLACED_BECAUSE: Final = "sub100.placement.reason"
DECODE_WORKER: Final = "sub100.placement.decode_worker_id"
PREDICTED_TTFT_MS: Final = "sub100.predicted_ttft_ms"
CANCELLED: Final = "sub100.cancelled"
CACHE_OUTCOME: Final = "sub100.cache.outcome"
CACHE_AGE_S: Final = "sub100.cache.age_s"
CACHE_RULE: Final = "sub100.cache.rule"
ATTEMPTS: Final = "sub100.attempts"
CODE: Final = "error.type"
MODEL: Final = "gen_ai.request.model"
OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
STREAM: Final = "gen_ai.request.stream"
TEMPERATURE: Final = "gen_ai.request.temperature"
TOP_P: Final = "gen_ai.request.top_p"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
HTTP_STATUS: Final = "http.response.status_code"
HTTP_ROUTE: Final = "http.route"
USAGE_TYPE: Final = "gen_ai.token.type"
OUTCOME: Final = "sub100.outcome"
VERDICT: Final = "sub100.verdict"
SOURCE: Final = "sub100.source"
PLACEMENT: Final = "sub100.placement"
ROLE: Final = "sub100.role"
POOL: Final = "sub100.pool"
STATE: Final = "sub100.state"
PHASE: Final = "sub100.phase"
SERVICE: Final = "sub100.service"
REASON: Final = "sub100.reason"
SIGNAL: Final = "sub100.signal"
GENERATION: Final = "sub100.generation"

# values of PROVIDER
PROVIDER_SUB100: Final = "sub100"

# values of TIER
TIER_EXACT: Final = "cache_exact"
TIER_WARM: Final = "warm"
TIER_COLD: Final = "cold"
TIER_JOINED: Final = "joined"
"""Generated once, for several equal requests: this one is not the first of them."""

TIER_NONE: Final = "none"


def _messaging(kind: str, destination: str) -> Mapping[str, str]:
    return {
        "messaging.system": "nats",
        "messaging.operation.type": kind,
        "messaging.operation.name": "publish" if kind == "send" else kind,
        "messaging.destination.template": destination,
    }


FIXED: Final[Mapping[str, Mapping[str, str]]] = {
    CACHE_LOOKUP: _messaging("send", "cache.lookup"),
    CACHE_SERVE: _messaging("process", "cache.lookup"),
    SCHEDULE: _messaging("send", "scheduler.place"),
    SCHEDULE_SERVE: _messaging("process", "scheduler.place"),
    PREFILL: _messaging("send", "prefill.job.<worker>"),
    PREFILL_SERVE: _messaging("process", "prefill.job.<worker>"),
    DECODE: _messaging("send", "decode.job.<worker>"),
    DECODE_SERVE: _messaging("process", "decode.job.<worker>"),
}
"""What every span of a name has: which message of the bus it sends or processes."""

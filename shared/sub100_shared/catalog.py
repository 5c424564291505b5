"""Every metric and every span that sub100 emits. A test compares the list with what a run emits.

Labels never hold a request id, a key, a prompt or a worker's name: who emitted a series is told by the
scrape (``instance``, ``job``) or by the resource of an OTLP export. Tenants appear in the ``sub100.tenant.*``
family only; they are the names in the key file, and ``SUB100_METRICS_TENANTS=false`` drops the family.
"""

from typing import Final

from . import semconv as names
from .metric import Metric, counter, gauge, histogram

_SHORT_S: Final = (
    *(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1),
    *(0.15, 0.25, 0.5, 1.0, 2.5, 10.0),
)
_TINY_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)

# --- the GenAI set, with the bucket edges that the convention advises

TIME_TO_FIRST_TOKEN: Final = histogram(
    "gen_ai.server.time_to_first_token",
    "s",
    "Arrival of the request to the first content byte. No sample when no content came; hits have their own "
    "tier; without streaming it is when the content was there, not when it could be read.",
    *(names.OPERATION, names.PROVIDER, names.MODEL, names.TIER, names.STREAM),
    buckets=(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    by="ingress",
)
TIME_PER_OUTPUT_TOKEN: Final = histogram(
    "gen_ai.server.time_per_output_token",
    "s",
    "Mean time per token after the first, of streams that ended well and were not served from the cache.",
    *(names.OPERATION, names.PROVIDER, names.MODEL),
    buckets=(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5),
    by="ingress",
)
REQUEST_DURATION: Final = histogram(
    "gen_ai.server.request.duration",
    "s",
    "Arrival to the last byte, of requests that were read and not refused at the door.",
    *(names.OPERATION, names.PROVIDER, names.MODEL, names.CODE),
    buckets=(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
    by="ingress",
)
TOKEN_USAGE: Final = histogram(
    "gen_ai.client.token.usage",
    "{token}",
    "Tokens of a request as its usage says. The convention has no server-side name for it.",
    *(names.OPERATION, names.PROVIDER, names.MODEL, names.USAGE_TYPE),
    buckets=tuple(float(4**i) for i in range(14)),
    by="ingress",
)

# --- requests and their budget (ingress)

REQUESTS_ENDED: Final = counter(
    "sub100.request.ended",
    "{request}",
    "Requests by how they ended: outcome is ok, client_error, refused, failed or cancelled; the code is "
    "empty for an answer.",
    *(names.OUTCOME, names.CODE, names.TIER),
    by="ingress",
)
REQUESTS_IN_FLIGHT: Final = gauge(
    "sub100.request.inflight", "{request}", "Requests being answered.", by="ingress"
)
ATTEMPTS_LOST: Final = counter(
    "sub100.attempt.lost",
    "{attempt}",
    "Attempts that a worker did not finish, by code; each leads to a re-placement or to the request's end.",
    names.CODE,
    by="ingress",
    rare="a worker dies or refuses a job",
)
REPLACEMENTS: Final = counter(
    "sub100.request.replaced",
    "{placement}",
    "Placements after the first of a request.",
    by="ingress",
    rare="an attempt is lost",
)
STREAM_EVENTS_UNKNOWN: Final = counter(
    "sub100.stream.unknown_events",
    "{event}",
    "Events of attempts that ingress does not know (any more): fenced, aborted or ended.",
    by="ingress",
    rare="an event crosses the end of its attempt",
)
BUDGET_JUDGED: Final = counter(
    "sub100.budget.judged",
    "{request}",
    "Requests with a first content byte: verdict is kept or missed; a miss names the hop to blame.",
    *(names.VERDICT, names.HOP, names.TIER, names.STREAM),
    by="ingress",
)
HOP_SPENT: Final = histogram(
    "sub100.hop.spent",
    "s",
    "Time spent in a hop before the first content byte; critical=false ran beside the critical path.",
    *(names.HOP, names.CRITICAL),
    buckets=_SHORT_S,
    by="ingress",
)
HOP_ALLOTTED: Final = counter(
    "sub100.hop.allotted",
    "s",
    "Time allotted to the hops counted in sub100.hop.spent; their quotient is the mean allotment.",
    names.HOP,
    by="ingress",
)
HOP_OVERRUN: Final = counter(
    "sub100.hop.overrun", "s", "Time spent in hops beyond their allotment.", names.HOP, by="ingress"
)
HOP_OVERRUNS: Final = counter(
    "sub100.hop.overruns", "{hop}", "Hops that took longer than allotted.", names.HOP, by="ingress"
)
HOP_BUS: Final = histogram(
    "sub100.hop.bus",
    "s",
    "The part of a hop that its callee does not account for: the bus and both ends' queues.",
    names.HOP,
    buckets=_TINY_S,
    by="ingress",
)
PREDICTION_ERROR: Final = histogram(
    "sub100.prediction.error",
    "s",
    "Predicted minus actual time from placement to first token, of first placements. Negative: too hopeful.",
    buckets=(-1.0, -0.25, -0.1, -0.05, -0.02, -0.01, -0.005, 0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0),
    by="ingress",
)
PROMPT_TOKENS: Final = counter(
    "sub100.prompt.tokens",
    "{token}",
    "Prompt tokens that workers took, by source: cached in a worker's prefix cache, or computed.",
    names.SOURCE,
    by="ingress",
)
CACHE_ASKED: Final = counter(
    "sub100.cache.asked",
    "{lookup}",
    "Look-ups of the answer cache as ingress saw them: the tier of a hit, or why there was none.",
    names.CACHE_OUTCOME,
    by="ingress",
)
CACHE_JUDGED: Final = counter(
    "sub100.cache.judged",
    "{case}",
    "Near questions that the guard refused and the fleet's own model was to settle: yes, no, error (no "
    "verdict), or dropped because the queue was full or the fleet busy.",
    names.VERDICT,
    by="ingress",
    rare="a tenant has a judge, and the guard refuses a near question",
)
REPLICAS_PASSED_BY: Final = counter(
    "sub100.replica.passed_by",
    "{replica}",
    "Times that ingress found a replica of the scheduler or the cache late with an answer, gone or silent, "
    "and went on with the others.",
    *(names.SERVICE, names.REASON),
    by="ingress",
    rare="a replica hangs or is killed",
)
TENANT_REQUESTS: Final = counter(
    "sub100.tenant.requests",
    "{request}",
    "Requests of a tenant by outcome.",
    *(names.TENANT, names.OUTCOME),
    by="ingress",
)
TENANT_MISSES: Final = counter(
    "sub100.tenant.budget_missed",
    "{request}",
    "First content bytes that came after the budget.",
    names.TENANT,
    by="ingress",
)
TENANT_TOKENS: Final = counter(
    "sub100.tenant.tokens", "{token}", "Tokens by type.", *(names.TENANT, names.USAGE_TYPE), by="ingress"
)

# --- the answer cache

CACHE_LOOKUP_DURATION: Final = histogram(
    "sub100.cache.lookup.duration",
    "s",
    "A look-up inside the cache service, by the tier of the hit or why there was none.",
    names.CACHE_OUTCOME,
    buckets=_TINY_S,
    by="cache",
)
CACHE_STORE_UP: Final = gauge(
    "sub100.cache.store.up",
    "{store}",
    "1 while Redis may be asked; 0 while every look-up misses.",
    by="cache",
)

CACHE_REFUSED: Final = counter(
    "sub100.cache.refused",
    "{lookup}",
    "Look-ups with a neighbour above the threshold that the guard refused, by the difference it saw first.",
    names.CACHE_RULE,
    by="cache",
    rare="a question is near another and asks something else",
)
CACHE_SHADOW: Final = counter(
    "sub100.cache.shadow",
    "{hit}",
    "Hits of tenants in shadow mode against the model's own answer: agreed or differed.",
    names.VERDICT,
    by="cache",
    rare="a tenant is in shadow mode",
)
CACHE_CUT_OFF: Final = gauge(
    "sub100.cache.cut_off",
    "{region}",
    "1 while every look-up misses because nothing was heard from the log of invalidations for too long.",
    by="cache",
)

# --- the scheduler: decisions, fleet, pools

PLACEMENT_DURATION: Final = histogram(
    "sub100.placement.duration", "s", "A decision, refusals included.", buckets=_TINY_S, by="scheduler"
)
PLACEMENTS: Final = counter(
    "sub100.placement.decided",
    "{placement}",
    "Placements by kind: pair (prefill and decode) or alone (decode does both).",
    names.PLACEMENT,
    by="scheduler",
)
ADMISSION_REFUSED: Final = counter(
    "sub100.admission.refused",
    "{request}",
    "Requests for a placement that were refused, by code.",
    names.CODE,
    by="scheduler",
    rare="no worker is ready, or all are full",
)
PLACEMENTS_OPEN: Final = gauge(
    "sub100.placement.open", "{placement}", "Placements that have not been settled.", by="scheduler"
)
FLEET_WORKERS: Final = gauge(
    "sub100.fleet.workers",
    "{worker}",
    "Workers by state.",
    *(names.ROLE, names.POOL, names.STATE),
    by="scheduler",
)
FLEET_LAPSED: Final = counter(
    "sub100.fleet.lapsed",
    "{worker}",
    "Workers that fell silent without saying goodbye.",
    by="scheduler",
    rare="a worker is killed or cut off",
)
FLEET_HEARTBEAT_AGE: Final = gauge(
    "sub100.fleet.heartbeat.age",
    "s",
    "Age of the oldest last heartbeat in the pool.",
    *(names.ROLE, names.POOL),
    by="scheduler",
)
POOL_WAITING_TOKENS: Final = gauge(
    "sub100.pool.waiting.tokens",
    "{token}",
    "Prompt tokens that wait in the pool, placements under way included.",
    *(names.ROLE, names.POOL),
    by="scheduler",
)
POOL_REQUESTS: Final = gauge(
    "sub100.pool.requests",
    "{request}",
    "Requests in the pool, running, waiting or under way.",
    *(names.ROLE, names.POOL),
    by="scheduler",
)
POOL_OCCUPANCY: Final = gauge(
    "sub100.pool.occupancy",
    "1",
    "Requests over the batch places of the pool's ready workers.",
    *(names.ROLE, names.POOL),
    by="scheduler",
)
POOL_KV_USAGE: Final = gauge(
    "sub100.pool.kv.usage",
    "1",
    "Mean share of the KV blocks in use over the pool's ready workers.",
    *(names.ROLE, names.POOL),
    by="scheduler",
)
POOL_TTFT: Final = gauge(
    "sub100.pool.ttft.predicted",
    "s",
    "Predicted time to first token of a prompt of recent length on the pool's best worker.",
    *(names.ROLE, names.POOL),
    by="scheduler",
)
POOL_WORK: Final = gauge(
    "sub100.pool.work",
    "{worker}",
    "Workers that the prefill work asked for would keep busy all the time.",
    *(names.ROLE, names.POOL),
    by="scheduler",
)
POOL_DEMAND: Final = gauge(
    "sub100.pool.replicas.demanded",
    "{worker}",
    "Replicas that one signal asks for at this moment: work, wait, occupancy or kv.",
    *(names.ROLE, names.POOL, names.SIGNAL),
    by="scheduler",
)
POOL_WANTED: Final = gauge(
    "sub100.pool.replicas.wanted",
    "{worker}",
    "Replicas that the pool should have: the largest demand, which falls with a delay only.",
    *(names.ROLE, names.POOL),
    by="scheduler",
)
INDEX_BLOCKS: Final = gauge(
    "sub100.index.blocks",
    "{block}",
    "KV blocks that the prefix index knows of, over all workers.",
    by="scheduler",
)
INDEX_STALE: Final = gauge(
    "sub100.index.stale",
    "{worker}",
    "Workers whose prefix cache is not known for certain: a dump has been asked for.",
    by="scheduler",
)
INDEX_GAPS: Final = counter(
    "sub100.index.gaps",
    "{gap}",
    "Losses of KV events that made the index ask for a dump.",
    by="scheduler",
    rare="KV events are lost",
)

# --- workers

_WORKERS: Final = "prefill decode"

ENGINE_REQUESTS: Final = gauge(
    "sub100.engine.requests",
    "{request}",
    "Requests in the engine: running or waiting.",
    names.STATE,
    by=_WORKERS,
)
ENGINE_WAITING_TOKENS: Final = gauge(
    "sub100.engine.waiting.tokens", "{token}", "Prompt tokens that wait in the engine.", by=_WORKERS
)
ENGINE_KV_USAGE: Final = gauge("sub100.engine.kv.usage", "1", "Share of the KV blocks in use.", by=_WORKERS)
ENGINE_STEPS: Final = counter(
    "sub100.engine.steps", "{step}", "Engine steps; it stands still when the engine core hangs.", by=_WORKERS
)
ENGINE_OUTPUT_TOKENS: Final = counter(
    "sub100.engine.output.tokens", "{token}", "Output tokens that the engine made.", by=_WORKERS
)
ENGINE_PROMPT_TOKENS: Final = counter(
    "sub100.engine.prompt.tokens",
    "{token}",
    "Prompt tokens that the engine took, by source: cached in its prefix cache, or not (computed or pulled).",
    names.SOURCE,
    by=_WORKERS,
)
SPECULATION_DRAFTS: Final = counter(
    "sub100.speculation.drafts",
    "{draft}",
    "Times that a sequence had draft tokens verified.",
    by=_WORKERS,
    rare="speculative decoding is on",
)
SPECULATION_TOKENS: Final = counter(
    "sub100.speculation.tokens",
    "{token}",
    "Draft tokens by what became of them: accepted or rejected. Accepted per draft is the accepted length.",
    names.OUTCOME,
    by=_WORKERS,
    rare="speculative decoding is on",
)
JOBS_OPEN: Final = gauge(
    "sub100.job.open", "{job}", "Jobs that the worker has claimed and not ended.", by=_WORKERS
)
JOBS_ENDED: Final = counter(
    "sub100.job.ended",
    "{job}",
    "Jobs by how they ended: empty for done, cancelled, or the code of the failure.",
    names.CODE,
    by=_WORKERS,
)
JOBS_REFUSED: Final = counter(
    "sub100.job.refused",
    "{job}",
    "Jobs answered Busy, by code.",
    names.CODE,
    by=_WORKERS,
    rare="a worker drains, is full or has begun a new life",
)
ENGINE_PHASE: Final = histogram(
    "sub100.engine.phase.duration",
    "s",
    "Until a job's first token: queue (not scheduled yet), transfer (pulling KV) and compute.",
    names.PHASE,
    buckets=_SHORT_S,
    by=_WORKERS,
)
KV_PINNED: Final = gauge(
    "sub100.kv.pinned", "{block}", "KV blocks that wait for a decode worker to pull them.", by=_WORKERS
)
KV_STRANDED: Final = counter(
    "sub100.kv.stranded",
    "{block}",
    "KV blocks that were handed over and never pulled, by outcome: released (the client had left, or the "
    "answer went on elsewhere) or expired (their lease freed them, because nobody else did).",
    names.OUTCOME,
    by=_WORKERS,
    rare="clients leave, or workers are lost, between prefill and decode",
)
KV_FAULT: Final = gauge(
    "sub100.kv.fault",
    "{worker}",
    "1 while the worker is not ready because its KV transfers fail with everybody it tried.",
    by=_WORKERS,
)
KV_TRANSFER_TOKENS: Final = counter(
    "sub100.kv.transfer.tokens",
    "{token}",
    "Prompt tokens whose KV was pulled from a prefill worker.",
    by="decode",
)
KV_TRANSFER_BYTES: Final = counter(
    "sub100.kv.transfer.io",
    "By",
    "Bytes of KV pulled from prefill workers, as their handles say.",
    by="decode",
)

# --- the traces service

SPANS_TAKEN: Final = counter(
    "sub100.traces.spans",
    "{span}",
    "Spans that exporters sent, by outcome: stored, or dropped because the disk did not keep up.",
    names.OUTCOME,
    by="traces",
)
SPANS_QUEUED: Final = gauge("sub100.traces.queued", "{span}", "Spans that wait to be written.", by="traces")

# --- the health of every process

SERVICE_READY: Final = gauge(
    "sub100.service.ready",
    "{service}",
    "1 while the service is ready to take work, by its state.",
    names.STATE,
)
BUS_CONNECTED: Final = gauge("sub100.bus.connected", "{connection}", "1 while NATS is connected.")
BUS_RECONNECTS: Final = counter(
    "sub100.bus.reconnects", "{reconnect}", "Connections to NATS that came back.", rare="NATS restarts"
)
BUS_DROPPED: Final = counter(
    "sub100.bus.dropped",
    "{message}",
    "Messages that were lost because this process did not take them fast enough (slow consumer).",
    rare="a process stalls while messages pour in",
)
BUS_PENDING_MESSAGES: Final = gauge(
    "sub100.bus.pending.messages",
    "{message}",
    "Messages received and not yet handled, over all subscriptions.",
)
BUS_PENDING_BYTES: Final = gauge("sub100.bus.pending.size", "By", "Their bytes.")
LOOP_LAG: Final = histogram(
    "sub100.loop.lag",
    "s",
    "How much later than asked for a timer ran: how long the event loop was busy with something else.",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5),
)
GC_PAUSE: Final = histogram(
    "sub100.gc.pause",
    "s",
    "Pauses of the garbage collector.",
    names.GENERATION,
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0),
)

METRICS: Final[tuple[Metric, ...]] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)
"""All of the above, in order."""

PROCESS_SERIES: Final = (
    "process_virtual_memory_bytes",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_cpu_seconds_total",
    "process_open_fds",
    "process_max_fds",
    "target_info",
)
"""What every Prometheus client exports under these names, and dashboards know."""

SPANS: Final = {
    names.REQUEST_CHAT: "A chat completion at ingress, from arrival to the last byte.",
    names.REQUEST_COMPLETION: "The same for a text completion.",
    names.CACHE_LOOKUP: "Ingress asks the cache.",
    names.CACHE_SERVE: "The cache looks up.",
    names.SCHEDULE: "Ingress asks for a placement.",
    names.SCHEDULE_SERVE: "The scheduler places.",
    names.PREFILL: "Ingress sends a prefill job and waits for its first token.",
    names.PREFILL_SERVE: "A prefill worker has the job.",
    names.DECODE: "Ingress sends a decode job and waits for its last token.",
    names.DECODE_SERVE: "A decode worker has the job.",
    names.ENGINE_QUEUE: "The job waits in the engine.",
    names.ENGINE_COMPUTE: "The engine computes the first token of the job.",
    names.KV_TRANSFER: "The engine pulls KV.",
}
"""Every span name and what it stands for."""

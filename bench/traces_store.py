"""What the traces service costs, and how fast it finds something among a million spans.

``make bench-traces``: fills a file as intake would (OTLP bodies in, the store's own code), takes the CPU time
of this process, then asks what the pages ask. No other service runs.
"""

import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from sub100_shared import semconv
from sub100_traces import otlp, waterfall
from sub100_traces.store import Filter, FleetFilter, Limits, Store

from .results import arguments, write

SPANS_PER_REQUEST: Final = 11
BATCH_REQUESTS: Final = 186
"""About what a busy fleet's exporters send in a second: 2,046 spans."""
TENANTS: Final = 40
WORKERS: Final = 24
LIMIT_MS: Final = 200.0
_TREE: Final = (
    (semconv.CACHE_LOOKUP, 0, semconv.HOP_CACHE),
    (semconv.CACHE_SERVE, 1, ""),
    (semconv.SCHEDULE, 0, semconv.HOP_SCHEDULE),
    (semconv.SCHEDULE_SERVE, 3, ""),
    (semconv.PREFILL, 0, semconv.HOP_PREFILL),
    (semconv.PREFILL_SERVE, 5, ""),
    (semconv.ENGINE_QUEUE, 6, ""),
    (semconv.ENGINE_COMPUTE, 6, ""),
    (semconv.DECODE, 0, semconv.HOP_DECODE),
    (semconv.DECODE_SERVE, 9, ""),
)
"""Name, index of the parent, hop."""


class Fleet:
    """Makes OTLP bodies. The same seed makes the same bodies."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.num_requests = 0

    def body(self, num_requests: int, now_s: float) -> bytes:
        request = ExportTraceServiceRequest()
        group = request.resource_spans.add()
        group.resource.attributes.add(key="service.name").value.string_value = "sub100-ingress"
        spans = group.scope_spans.add().spans
        for _ in range(num_requests):
            self._request(spans, int(now_s * 1e9))
        return bytes(request.SerializeToString())

    def _request(self, spans: object, start_ns: int) -> None:
        draw = self._random
        self.num_requests += 1
        trace_id = draw.randbytes(16)
        ids = [draw.randbytes(8) for _ in range(SPANS_PER_REQUEST)]
        prefill_ms = draw.lognormvariate(3.6, 0.5)
        ttft_ms = prefill_ms + 4
        is_late = ttft_ms > 100
        worker = draw.randrange(WORKERS)

        def add(index: int, name: str, parent: bytes, length_ms: float, values: dict[str, object]) -> None:
            span = spans.add()  # type: ignore[attr-defined]
            span.trace_id, span.span_id, span.parent_span_id, span.name = trace_id, ids[index], parent, name
            span.start_time_unix_nano = start_ns + index * 100_000
            span.end_time_unix_nano = start_ns + index * 100_000 + int(length_ms * 1e6)
            for key, value in values.items():
                any_value = span.attributes.add(key=key).value
                match value:
                    case bool():
                        any_value.bool_value = value
                    case int():
                        any_value.int_value = value
                    case float():
                        any_value.double_value = value
                    case _:
                        any_value.string_value = str(value)

        for index, (name, parent, hop) in enumerate(_TREE, 1):
            values: dict[str, object] = {}
            if hop:
                is_prefill = hop == semconv.HOP_PREFILL
                spent_ms = prefill_ms if is_prefill else draw.uniform(0.3, 2)
                values = {
                    semconv.HOP: hop,
                    semconv.ALLOTTED_MS: 60.0 if is_prefill else 5.0,
                    semconv.SPENT_MS: spent_ms,
                    semconv.OVERRUN_MS: 0.0,
                    semconv.BUS_MS: 0.4,
                    semconv.CRITICAL: hop in (semconv.HOP_SCHEDULE, semconv.HOP_PREFILL),
                    semconv.WORKER: f"{hop}-{worker}",
                }
            add(index, name, ids[parent], prefill_ms, values)
        add(
            0,
            semconv.REQUEST_CHAT,
            b"",
            ttft_ms + 500,
            {
                semconv.REQUEST_ID: f"req-{self.num_requests:012d}",
                semconv.TENANT: f"tenant-{min(int(draw.expovariate(0.2)), TENANTS)}",
                semconv.MODEL: "sub100",
                semconv.REGION: draw.choice(("eu-west", "us-east", "ap-south")),
                semconv.TIER: draw.choice((semconv.TIER_COLD, semconv.TIER_WARM, semconv.TIER_EXACT)),
                semconv.BUDGET_TOTAL_MS: 100.0,
                semconv.TTFT_MS: ttft_ms,
                semconv.BLAME: semconv.HOP_PREFILL if is_late else "",
                semconv.HTTP_STATUS: 200 if draw.random() > 0.01 else 503,
                semconv.INPUT_TOKENS: draw.randrange(4000),
                semconv.OUTPUT_TOKENS: draw.randrange(400),
                semconv.ATTEMPTS: 1,
            },
        )


def fill(
    store: Store, fleet: Fleet, num_requests: int, set_clock: Callable[[float], None]
) -> dict[str, float]:
    """CPU milliseconds per request by stage. A second of the store's time passes with each batch."""
    spent = {"parse": 0.0, "write": 0.0, "settle": 0.0}
    began_s = time.time() - 7 * 3600
    num_done = 0
    while num_done < num_requests:
        now_s = began_s + num_done / BATCH_REQUESTS
        set_clock(now_s)
        body = fleet.body(min(BATCH_REQUESTS, num_requests - num_done), now_s)
        times = [time.process_time()]
        spans = otlp.parse(body).spans
        times.append(time.process_time())
        store.write(spans)
        times.append(time.process_time())
        store.keep_house()
        times.append(time.process_time())
        for stage, before, after in zip(spent, times, times[1:], strict=False):
            spent[stage] += after - before
        num_done += BATCH_REQUESTS
    set_clock(now_s + 5)
    while store.keep_house().is_more:
        pass
    return {stage: seconds * 1e3 / num_requests for stage, seconds in spent.items()}


def ask(what: str, question: Callable[[], object], repeats: int) -> dict[str, object]:
    times: list[float] = []
    for _ in range(repeats):
        began = time.perf_counter()
        question()
        times.append((time.perf_counter() - began) * 1e3)
    times.sort()
    return {"what": what, "p50_ms": round(statistics.median(times), 2), "max_ms": round(times[-1], 2)}


def questions(store: Store, fleet: Fleet, now_s: float) -> dict[str, Callable[[], object]]:
    some = store.page(Filter(), 1).requests[0]
    middle = f"req-{fleet.num_requests // 2:012d}"

    def page(**wanted: object) -> Callable[[], object]:
        return lambda: store.page(Filter(**wanted), 100)  # type: ignore[arg-type]

    return {
        "newest 100": page(),
        "a page in the middle": page(before=some.seq // 2),
        "a rare tenant": page(tenant=f"tenant-{TENANTS}"),
        "a tenant that is not there": page(tenant="nobody"),
        "region, tier and worker": page(region="eu-west", tier="warm", worker="prefill-3"),
        "over budget": page(late=True),
        "failed": page(status="failed"),
        "over budget in one tier, blamed on a hop that never was": page(
            late=True, tier="cold", blame="cache"
        ),
        "a part of a request id": page(q=middle[4:]),
        "a part that is nowhere": page(q="no-such-request"),
        "the beginning of a trace id": page(q=some.trace_id[:12]),
        "a status nobody had": page(status="418"),
        "one request by id": lambda: store.request(middle),
        "its waterfall": lambda: waterfall.build(store.spans(some.trace_id), some.span_id),
        "the values to filter by": store.facets,
        "the fleet, 15 minutes": lambda: store.fleet(FleetFilter(range="15m"), now_s),
        "the fleet, 3 hours": lambda: store.fleet(FleetFilter(range="3h"), now_s),
        "the fleet, 7 days, one worker": lambda: store.fleet(
            FleetFilter(range="7d", worker="prefill-3"), now_s
        ),
        "the slowest of an hour": lambda: store.slowest(now_s - 3600, 10, FleetFilter()),
    }


def main() -> None:
    parser = arguments(__doc__, "traces_store")
    parser.add_argument("--spans", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    num_requests = options.spans // SPANS_PER_REQUEST
    clock = [0.0]
    store = Store("", Limits(max_traces=10**9, max_bytes=2**40), lambda: clock[0])
    fleet = Fleet(seed=1)
    costs = fill(store, fleet, num_requests, lambda now_s: clock.__setitem__(0, now_s))
    size_mib = Path(store.path).stat().st_size / 2**20
    print(f"{num_requests:,} requests, {options.spans:,} spans, {size_mib:.0f} MiB")
    print("CPU ms per request: " + ", ".join(f"{stage} {ms:.3f}" for stage, ms in costs.items()))
    answers = [
        ask(what, question, options.repeats) for what, question in questions(store, fleet, clock[0]).items()
    ]
    for answer in answers:
        print(f"{answer['p50_ms']:>8} ms p50 {answer['max_ms']:>8} ms max  {answer['what']}")
    store.close()
    write(
        options.out,
        f"Intake and search of the traces service; limit of a search {LIMIT_MS:.0f} ms",
        num_spans=options.spans,
        num_requests=num_requests,
        file_mib=round(size_mib),
        cpu_ms_per_request={stage: round(ms, 4) for stage, ms in costs.items()},
        answers=answers,
    )
    slow = [answer["what"] for answer in answers if float(str(answer["p50_ms"])) > LIMIT_MS]
    raise SystemExit(f"over {LIMIT_MS:.0f} ms: {', '.join(map(str, slow))}" if slow else 0)


if __name__ == "__main__":
    main()

"""One request, one trace over every hop, and a time to first token that is the client's."""

import asyncio
import contextlib
import secrets
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.e2e.raw_http import DONE, LiveStream, deltas, post, request
from tests.e2e.slow import STEP_S, prompt_of_steps, slow_stack
from tests.e2e.system import MODEL, log_of, sim_only
from tests.patience import at_best, eventually
from tests.stack import Stack, running_stack

PARENT_ID = "b7ad6b7169203331"
TREE = {
    "chat": "",
    "cache.lookup": "chat",
    "cache.process": "cache.lookup",
    "scheduler.place": "chat",
    "scheduler.process": "scheduler.place",
    "prefill.job": "chat",
    "prefill.process": "prefill.job",
    "decode.job": "chat",
    "decode.process": "decode.job",
}
"""Span -> parent. The engines' phases hang below ``*.process``."""

SERVICES = {"chat": "ingress", "cache.process": "cache", "scheduler.process": "scheduler"} | {
    f"{role}.process": role for role in ("prefill", "decode")
}


def ask(stack: Stack, *, tenant: str = "demo", **headers: str) -> str:
    """A short chat that no cache has; returns its request id."""
    request_id = f"trace-{secrets.token_hex(8)}"
    content = secrets.token_hex(8)
    body = {"model": MODEL, "messages": [{"role": "user", "content": content}], "max_tokens": 4}
    sent = [("X-Request-Id", request_id), *headers.items()]
    answer = post(stack.url, body | {"ignore_eos": True}, stack.keys[tenant], headers=sent)
    assert answer.status == 200, answer.body
    return request_id


def summary_of(stack: Stack, request_id: str) -> dict[str, Any]:
    """The request's line in the traces service; waits for the exporters."""

    def listed() -> dict[str, Any] | None:
        page = request(stack.traces_url, "GET", f"/api/traces?q={request_id}").json["requests"]
        return next((found for found in page if found["request_id"] == request_id), None)

    return eventually(listed, f"a trace of {request_id}")


def spans_of(stack: Stack, trace_id: str, *wanted: str) -> dict[str, dict[str, Any]]:
    """The trace's spans by name (the last of each), once those wanted are there."""

    def complete() -> dict[str, dict[str, Any]] | None:
        rows = request(stack.traces_url, "GET", f"/api/trace/{trace_id}").json.get("rows", [])
        spans = {row["span"]["name"]: row["span"] for row in rows}
        return spans if spans.keys() >= set(wanted) else None

    return eventually(complete, f"{wanted} in {trace_id}")


def check_parents(spans: dict[str, dict[str, Any]], root_parent: str = "") -> None:
    for name, parent in TREE.items():
        expected = spans[parent]["span_id"] if parent else root_parent
        assert spans[name]["parent_id"] == expected, name
    for name, service in SERVICES.items():
        assert spans[name]["service"] == f"sub100-{service}"


def test_trace_spans_all_hops_with_right_parents(stack: Stack) -> None:
    """O02, without a caller's context: a new root."""
    found = summary_of(stack, ask(stack))
    spans = spans_of(stack, found["trace_id"], *TREE)
    check_parents(spans)
    assert {span["trace_id"] for span in spans.values()} == {found["trace_id"]}
    root = spans["chat"]
    for name, span in spans.items():
        assert span["start_ns"] >= root["start_ns"], name
        assert span["end_ns"] >= span["start_ns"], name


def test_callers_context_is_honoured(stack: Stack) -> None:
    """O02: the caller's trace id on every hop, its span the root's parent."""
    trace_id = secrets.token_hex(16)
    request_id = ask(stack, traceparent=f"00-{trace_id}-{PARENT_ID}-01", tracestate="vendor=opaque")
    assert summary_of(stack, request_id)["trace_id"] == trace_id
    check_parents(spans_of(stack, trace_id, *TREE), PARENT_ID)


@pytest.mark.parametrize(
    "traceparent",
    [
        "",
        "nonsense",
        f"00-{'0' * 32}-{PARENT_ID}-01",
        f"00-{'a' * 32}-{'0' * 16}-01",
        f"ff-{'a' * 32}-{PARENT_ID}-01",
        f"00-{'A' * 32}-{PARENT_ID}-01x",
        f"00-{'a' * 31}-{PARENT_ID}-01",
        f"00-{'g' * 32}-{PARENT_ID}-01",
        f"00-{'a' * 32}-{PARENT_ID}",
        f"00-{'a' * 32}-{PARENT_ID}-01-extra",
    ],
)
def test_malformed_context_is_a_new_root(stack: Stack, traceparent: str) -> None:
    """O02, with W3C's invalid values: no error, and nothing of the value is used."""
    found = summary_of(stack, ask(stack, traceparent=traceparent))
    assert found["trace_id"] not in traceparent.lower()
    assert spans_of(stack, found["trace_id"], "chat")["chat"]["parent_id"] == ""


def test_long_stream_has_no_more_spans_than_a_short_one(stack: Stack) -> None:
    """O06: a span per hop, not per token; the root lasts to the end of the stream."""
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": secrets.token_hex(8)}],
        "max_tokens": 300,
        "ignore_eos": True,
        "stream": True,
    }

    def untold_s() -> float:
        """How much of the client's time the root does not tell of, or it tells of too much."""
        answer = post(stack.url, body, stack.keys["demo"])
        found = summary_of(stack, answer.headers["x-request-id"])
        spans_of(stack, found["trace_id"], *TREE)
        rows = request(stack.traces_url, "GET", f"/api/trace/{found['trace_id']}").json["rows"]
        assert len(rows) <= len(TREE) + 6  # queue, transfer and compute of two engines
        assert found["ttft_ms"] < found["duration_ms"]
        return abs(float(answer.elapsed_s - found["duration_ms"] / 1e3))  # who is done first depends

    at_best(untold_s, 0.05, "the client took longer by")


def test_hit_has_its_tier_and_no_worker_in_its_trace(stack: Stack) -> None:
    """O04: hits are labelled apart."""
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": secrets.token_hex(8)}],
        "temperature": 0,
        "max_tokens": 200,
        "stop": [" ", "e", "a", "\ufffd"],
    }
    wanted = ("chat", "cache.lookup", "cache.process")

    def has_no_worker() -> bool:
        """A tenant that mostly missed has its dispatch beside the look-up for the first few hits."""
        answer = post(stack.url, body, stack.keys["demo"])
        if answer.headers["x-sub100-tier"] != "cache_exact":
            return False
        found = summary_of(stack, answer.headers["x-request-id"])
        assert found["tier"] == "cache_exact"
        return set(spans_of(stack, found["trace_id"], *wanted)) == set(wanted)

    eventually(has_no_worker, "a hit that dispatches nothing")


def test_no_prompt_text_in_any_span(stack: Stack) -> None:
    canary = f"canary{secrets.token_hex(8)}"
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": canary}],
        "max_tokens": 2,
        "user": canary,
    }
    answer = post(stack.url, body, stack.keys["demo"])
    found = summary_of(stack, answer.headers["x-request-id"])
    trace = request(stack.traces_url, "GET", f"/api/trace/{found['trace_id']}").body
    assert canary.encode() not in trace
    assert stack.keys["demo"].encode() not in trace


@pytest.fixture(scope="module")
def slow(tiny_model: Path) -> Iterator[Stack]:
    with slow_stack(tiny_model, traces=True, SUB100_INGRESS_KEEP_ALIVE_S="0.2") as running:
        yield running


@sim_only
def test_ttft_is_the_clients_first_content_chunk(slow: Stack) -> None:
    """O04: neither the keep-alive nor the head counts; within 10 ms of what the client saw, at best."""

    def difference_s() -> float:
        body = prompt_of_steps(6, salt=secrets.token_hex(4)) | {"stream": True}
        started_at = time.monotonic()
        with LiveStream(slow.url, body, slow.keys["plain"]) as stream:
            is_comment = isinstance(stream.next_event(), bytes)
            stream.next_text()
            seen_ms = (time.monotonic() - started_at) * 1e3
            request_id = stream.response.headers["x-request-id"]
            assert stream.rest()[-1] == DONE
        ttft_ms = summary_of(slow, request_id)["ttft_ms"]
        assert is_comment
        assert ttft_ms > 2 * STEP_S * 1e3
        assert ttft_ms <= seen_ms
        return float(seen_ms - ttft_ms) / 1e3

    at_best(difference_s, 0.010, "the client saw it later by")


@sim_only
def test_client_that_left_before_a_token_has_no_ttft(slow: Stack) -> None:
    """O04: no sample when no token came."""
    body = prompt_of_steps(6, salt="left") | {"stream": True}
    with LiveStream(slow.url, body, slow.keys["plain"]) as stream:
        assert isinstance(stream.next_event(), bytes)
        request_id = stream.response.headers["x-request-id"]
    found = summary_of(slow, request_id)
    assert found["ttft_ms"] is None
    root = spans_of(slow, found["trace_id"], "chat")["chat"]
    assert root["attributes"]["sub100.cancelled"] is True


@sim_only
def test_trace_stays_one_over_an_internal_retry(slow: Stack) -> None:
    """O02: both attempts hang under the same root, the lost one marked."""
    prefill = slow.replicas["prefill-1"]
    body = prompt_of_steps(6, salt="retry") | {"stream": True}
    with LiveStream(slow.url, body, slow.keys["plain"]) as stream:
        assert isinstance(stream.next_event(), bytes)
        prefill.signal(signal.SIGKILL)
        request_id = stream.response.headers["x-request-id"]
        events = stream.rest()
    prefill.wait()
    prefill.start()
    slow.wait_ready("prefill-1")
    assert events[-1] == DONE
    assert deltas(event for event in events if isinstance(event, dict))
    found = summary_of(slow, request_id)
    spans = spans_of(slow, found["trace_id"], "prefill.job", "decode.process")
    assert spans["chat"]["attributes"]["sub100.attempts"] == 2
    assert spans["prefill.job"]["is_error"]
    assert spans["prefill.job"]["attributes"]["error.type"] == "worker_lost"
    assert spans["prefill.job"]["parent_id"] == spans["decode.job"]["parent_id"] == spans["chat"]["span_id"]


@sim_only
def test_unsampled_request_over_its_budget_or_failed_is_there_with_its_hops(tiny_model: Path) -> None:
    """Sampled out: neither services nor workers record. What somebody will ask about, ingress makes of its
    ledger; the client's number and the page's are the same."""
    env = {"OTEL_TRACES_SAMPLER": "always_off", "SUB100_INGRESS_BUDGET_MS": "600000"}
    with running_stack(tiny_model, timing="h200-8b", traces=True, env=env) as stack:
        in_time = ask(stack)
        body = {"model": MODEL, "messages": [{"role": "user", "content": "late"}], "max_tokens": 4}
        sent = [("X-Request-Id", "late-1"), ("X-Sub100-Budget-Ms", "1")]
        late = post(stack.url, body, stack.keys["plain"], headers=sent).json["sub100"]
        stack.replicas["decode-1"].stop()
        stack.replicas["prefill-1"].stop()
        failed = post(stack.url, body, stack.keys["plain"], headers=[("X-Request-Id", "failed-1")])
        assert failed.status == 503
        assert summary_of(stack, "failed-1")["ttft_ms"] is None
        found = summary_of(stack, "late-1")
        spans = spans_of(stack, found["trace_id"], "chat", "scheduler.place", "prefill.job", "decode.job")
        listed = request(stack.traces_url, "GET", "/api/traces?limit=1000").json["requests"]
    assert late["blame"] == found["blame"]
    assert late["blame"] in {hop["name"] for hop in late["hops"]}
    assert late["ttft_ms"] == pytest.approx(found["ttft_ms"], abs=0.01)
    critical = [hop for hop in late["hops"] if not hop.get("hidden")]
    assert sum(hop["spent_ms"] for hop in critical) == pytest.approx(late["ttft_ms"], abs=0.1)
    assert set(spans) == {"chat", "scheduler.place", "prefill.job", "decode.job"}
    assert in_time not in {each["request_id"] for each in listed}


def test_streams_that_share_connections_share_no_trace(stack: Stack) -> None:
    """O03: a hundred streams over five keep-alive connections, each with a context of its own: every span
    and every log line of a trace is of its own request and tenant."""
    trace_ids = [secrets.token_hex(16) for _ in range(100)]

    async def over_one_connection(client: httpx.AsyncClient, numbers: range) -> None:
        for number in numbers:
            tenant = ("plain", "other")[number % 2]
            headers = {
                "Authorization": f"Bearer {stack.keys[tenant]}",
                "X-Request-Id": f"shared-{trace_ids[number]}",
                "traceparent": f"00-{trace_ids[number]}-{PARENT_ID}-01",
            }
            body = {
                "model": MODEL,
                "messages": [{"role": "user", "content": f"canary {number}"}],
                "max_tokens": 20,
                "stream": True,
                "temperature": 0,
            }
            async with client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as answer:
                assert answer.status_code == 200
                assert answer.headers["x-request-id"] == headers["X-Request-Id"]
                async for _ in answer.aiter_lines():
                    pass

    async def all_at_once() -> None:
        limits = httpx.Limits(max_connections=1)
        async with contextlib.AsyncExitStack() as cleanup, asyncio.TaskGroup() as group:
            for first in range(5):
                client = httpx.AsyncClient(base_url=stack.url, limits=limits, timeout=60)
                await cleanup.enter_async_context(client)
                group.create_task(over_one_connection(client, range(first, 100, 5)))

    asyncio.run(all_at_once())
    for number, trace_id in enumerate(trace_ids):
        request_id = f"shared-{trace_id}"
        spans = spans_of(stack, trace_id, "chat", "scheduler.process", "prefill.process", "decode.process")
        told = {span["attributes"].get("sub100.request_id", request_id) for span in spans.values()}
        assert told == {request_id}
        assert spans["chat"]["parent_id"] == PARENT_ID
        assert spans["chat"]["attributes"]["sub100.tenant"] == ("plain", "other")[number % 2]
        assert log_of(stack, request_id)["tenant"] == ("plain", "other")[number % 2]

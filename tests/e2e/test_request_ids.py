"""What clients put into headers: request ids, trace state, baggage. It forges nothing and mixes nothing."""

import json
import secrets
from typing import Any

import pytest
from tests.e2e.bus_watch import BusWatch
from tests.e2e.raw_http import LiveStream, post
from tests.e2e.system import ENGINE, MODEL, log_of
from tests.stack import Stack

BODY: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE_ID}-b7ad6b7169203331-01"


def test_short_plain_id_is_echoed(stack: Stack) -> None:
    """S06."""
    answer = post(stack.url, BODY, stack.keys["plain"], headers=[("X-Request-Id", "my-request_1.2")])
    assert answer.headers["x-request-id"] == "my-request_1.2"
    assert "my-request_1.2" in answer.json["id"]


@pytest.mark.parametrize(
    "value",
    [
        b"x" * 10_000,
        b"a\tb",
        b"a\x1b[31mb",
        b'a"b',
        b"a b",
        "blåbær".encode(),
        b"a;b",
        b"",
        b"../x",
        b"a\x7fb",
    ],
    ids=lambda value: repr(value)[:20],
)
def test_odd_id_is_replaced(stack: Stack, value: bytes) -> None:
    """S06: whatever else is done with the request, the id is ours; logs stay one JSON object a line."""
    answer = post(stack.url, BODY, stack.keys["plain"], headers=[("X-Request-Id", value)])
    assert answer.status in (200, 400)
    if answer.status == 200:
        found = answer.headers["x-request-id"]
        assert found.startswith("req-")
        assert len(found) < 64
        assert log_of(stack, found)["status"] == 200
    for line in stack.replicas["ingress-1"].log.splitlines():
        json.loads(line)


def test_two_requests_with_one_id_never_mix(stack: Stack) -> None:
    """S06: the abort of one leaves the other alone; both are two answers."""
    same = [("X-Request-Id", f"same-{secrets.token_hex(4)}")]
    long: dict[str, Any] = BODY | {"max_tokens": 120, "ignore_eos": True, "stream": True, "temperature": 0}
    alone = post(stack.url, long, stack.keys["plain"])
    with (
        LiveStream(stack.url, long, stack.keys["plain"], headers=same) as other,
        LiveStream(stack.url, long, stack.keys["plain"], headers=same) as mine,
    ):
        first = [mine.next_event(), other.next_event()]
        assert first[0]["id"] != first[1]["id"]
        mine.reset()
        events = [first[1], *other.rest()]
    pieces = [event["choices"][0]["delta"].get("content", "") for event in events if isinstance(event, dict)]
    assert "".join(pieces) == alone.text


def test_prompt_cannot_forge_log_lines_and_appears_in_none(stack: Stack) -> None:
    """S06: content is never logged, by any service, for good requests and for refused ones."""
    canary = f"canary{secrets.token_hex(8)}"
    content = f'{canary}\n{{"level":"error","event":"forged {canary}"}}\r\n\x1b[31m{canary}'
    message = {"role": "user", "content": content}
    for body in (
        BODY | {"messages": [message]},
        BODY | {"messages": [message], "stop": [canary], "user": canary, "metadata": {"a": canary}},
        BODY | {"messages": [message], "temperature": canary},
        BODY | {"messages": [{"role": canary, "content": content}]},
        BODY | {"messages": [message] * 2000},
        BODY | {"model": canary},
        b'{"' + canary.encode() + b"\n",
    ):
        for tenant in ("plain", "demo"):
            post(stack.url, body, stack.keys[tenant])
    final = post(stack.url, BODY, stack.keys["plain"])
    log_of(stack, final.headers["x-request-id"])
    for replica in stack.replicas.values():
        assert canary not in replica.log, replica.instance
        if ENGINE == "vllm" and replica.service in ("prefill", "decode"):
            continue  # libraries below the engine print what they like
        for line in replica.log.splitlines():
            json.loads(line)


@pytest.mark.parametrize(
    "headers",
    [
        [("tracestate", "vendor=ø".encode())],
        [("tracestate", "vendor=😀".encode()), ("baggage", "user=ø".encode())],
        [("tracestate", b"a=" + b"x" * 20_000)],
        [("baggage", b"k=" + b"v" * 20_000)],
        [("tracestate", b"a=1\tb=2")],
        [("tracestate", b"a=%0d%0aX-Forged: 1")],
        [("X-Tenant-Label", "ø".encode()), ("User-Agent", "😀".encode())],
    ],
    ids=lambda headers: repr(headers)[:40],
)
def test_odd_header_costs_no_hop_its_trace(
    stack: Stack, bus: BusWatch, headers: list[tuple[str, bytes]]
) -> None:
    """N07: one byte outside ASCII costs a NATS receiver all headers; the trace id must still arrive."""
    mark = bus.mark()
    answer = post(stack.url, BODY, stack.keys["plain"], headers=[("traceparent", TRACEPARENT), *headers])
    if answer.status in (400, 431):
        return  # refused at the door
    assert answer.status == 200, answer.body
    bus.wait(lambda: bool(bus.since(mark, ".decode.job.")), "the decode job")
    for msg in bus.since(mark, ".scheduler.place.", ".prefill.job.", ".decode.job."):
        assert msg.headers["traceparent"].split("-")[1] == TRACE_ID
        assert set(msg.headers) <= {"traceparent", "tracestate"}
        assert len(msg.headers.get("tracestate", "")) <= 512


@pytest.mark.parametrize("name", ["X-Request-Id", "tracestate"])
def test_line_breaks_in_a_header_never_become_headers(stack: Stack, bus: BusWatch, name: str) -> None:
    """N07: a folded header line is refused or cleaned, and forges nothing on the bus."""
    mark = bus.mark()
    answer = post(
        stack.url, BODY, stack.keys["plain"], headers=[(name, b"a=1\r\n X-Forged: 1"), ("X-Last", "1")]
    )
    assert answer.status in (200, 400)
    assert answer.headers["x-forged"] is None
    for msg in bus.since(mark, "."):
        assert "x-forged" not in {key.lower() for key in msg.headers}

"""The traces page beside a running system: it lists what has just ended, with the ledger's own numbers."""

import re
import secrets
import time
from typing import Any

import pytest
from tests.e2e.raw_http import Answer, post, request
from tests.e2e.system import MODEL
from tests.patience import at_best, eventually
from tests.stack import Stack

LISTED_S = 1.0
TOLERANCE_MS = 0.05
"""Spans and header round to hundredths."""


def ask(stack: Stack) -> Answer:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": secrets.token_hex(8)}],
        "max_tokens": 4,
        "ignore_eos": True,
    }
    answer = post(stack.url, body, stack.keys["demo"])
    assert answer.status == 200, answer.body
    return answer


def listed(stack: Stack, request_id: str, *, settled: bool = False) -> dict[str, Any]:
    def line() -> dict[str, Any] | None:
        page = request(stack.traces_url, "GET", f"/api/traces?q={request_id}").json["requests"]
        return next((found for found in page if found.get("path") or not settled), None)

    return eventually(line, f"{request_id} listed")


def test_finished_request_is_listed_within_a_second(stack: Stack) -> None:
    def listed_after_s() -> float:
        answer = ask(stack)
        ended = time.monotonic()
        listed(stack, answer.headers["x-request-id"])
        return time.monotonic() - ended

    at_best(listed_after_s, LISTED_S, "listed after")


def test_path_on_the_page_is_the_one_that_the_caller_was_told(stack: Stack) -> None:
    answer = ask(stack)
    told = {
        name: float(ms) for name, ms in re.findall(r"([a-z]+);dur=([\d.]+)", answer.headers["server-timing"])
    }
    told["ingress"] += told.pop(
        "lead", 0.0
    )  # no other process is asked meanwhile: on the page it is ingress's
    found = listed(stack, answer.headers["x-request-id"], settled=True)
    shown = {hop: float(ms) for hop, _, ms in (piece.rpartition(":") for piece in found["path"].split(","))}
    assert set(shown) == set(told) - {"ttft"}
    for hop, ms in shown.items():
        assert ms == pytest.approx(told[hop], abs=TOLERANCE_MS), hop
    page = request(stack.traces_url, "GET", f"/r/{answer.headers['x-request-id']}")
    assert page.status == 200
    assert b"irst token after" in page.body

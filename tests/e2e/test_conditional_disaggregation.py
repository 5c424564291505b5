"""A prompt whose beginning the decode worker holds is prefilled there; the answer is the same either way."""

import secrets
import time
from typing import Any

import pytest
from tests.e2e.raw_http import post
from tests.e2e.system import MODEL
from tests.e2e.test_tracing import spans_of, summary_of
from tests.stack import Stack

WAIT_S = 15.0
TENANT = "plain"


def ask(stack: Stack, prompt: str) -> tuple[str, dict[str, dict[str, Any]]]:
    """Text and spans of a greedy completion."""
    request_id = f"alone-{secrets.token_hex(8)}"
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": True}
    answer = post(
        stack.url, body, stack.keys[TENANT], path="/v1/completions", headers=[("X-Request-Id", request_id)]
    )
    assert answer.status == 200, answer.body
    trace_id = summary_of(stack, request_id)["trace_id"]
    spans = spans_of(stack, trace_id, "scheduler.process", "decode.process")
    return answer.json["choices"][0]["text"], spans


def reason(spans: dict[str, dict[str, Any]]) -> str:
    return str(spans["scheduler.process"]["attributes"]["sub100.placement.reason"])


@pytest.mark.timeout(90)
def test_prompt_that_decode_holds_is_prefilled_there_and_answered_alike(stack: Stack) -> None:
    beginning = " ".join(secrets.token_hex(4) for _ in range(60))
    text, spans = ask(stack, beginning)
    assert reason(spans) == "pair"
    deadline = time.monotonic() + WAIT_S
    while True:  # until the scheduler has heard of decode's blocks
        again, spans = ask(stack, beginning)
        assert again == text
        if reason(spans) != "pair":
            break
        assert time.monotonic() < deadline, "decode never prefilled it"
    assert reason(spans) == "short_uncached"
    assert "prefill.process" not in spans
    served = spans["decode.process"]["attributes"]
    assert int(served["sub100.kv.cached_tokens"]) > 0
    assert int(served["sub100.kv.transferred_tokens"]) == 0

"""A prompt whose beginning the decode worker holds is prefilled there; the answer is the same either way."""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.raw_http import post
from tests.e2e.system import ENGINE, MODEL, PATIENT
from tests.e2e.test_tracing import spans_of, summary_of
from tests.patience import eventually
from tests.stack import Stack, running_stack

TENANT = "plain"


@pytest.fixture(scope="module")
def own(tiny_model: Path) -> Iterator[Stack]:
    """A hand-over is said to take long: whatever speeds the scheduler has learnt of its workers on a busy
    machine, decode by itself is quicker."""
    env = {"SUB100_SCHEDULER_HANDOVER_MS": "10000", "SUB100_SCHEDULER_MAX_STALL_MS": "10000"}
    env |= {f"SUB100_{role}_DTYPE": "float32" for role in ("PREFILL", "DECODE")}
    with running_stack(tiny_model, engine=ENGINE, timing="h200-8b", traces=True, env=PATIENT | env) as stack:
        yield stack


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


def test_prompt_that_decode_holds_is_prefilled_there_and_answered_alike(own: Stack) -> None:
    beginning = " ".join(secrets.token_hex(4) for _ in range(60))
    text, first = ask(own, beginning)
    assert reason(first) == "pair"

    def not_a_pair() -> dict[str, dict[str, Any]] | None:
        """Once the scheduler has heard of decode's blocks."""
        again, spans = ask(own, beginning)
        assert again == text
        return None if reason(spans) == "pair" else spans

    spans = eventually(not_a_pair, "a prompt that decode prefills")
    assert reason(spans) == "short_uncached"
    assert "prefill.process" not in spans
    served = spans["decode.process"]["attributes"]
    assert int(served["sub100.kv.cached_tokens"]) > 0
    assert int(served["sub100.kv.transferred_tokens"]) == 0

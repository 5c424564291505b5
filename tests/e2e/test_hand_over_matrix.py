"""Limits and ends on both sides of the hand-over: the answer is the one of a worker that does everything
itself.

One system; its prefill worker leaves between the two runs, so that decode then computes prompts too. On both
engines; on real vLLM in float32, where chunks of other sizes flip no near tie.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.e2e.bus_watch import watching
from tests.e2e.raw_http import post
from tests.e2e.system import ENGINE, MODEL, PATIENT
from tests.stack import Stack, running_stack

pytestmark = pytest.mark.timeout(400)

CONTEXT = 320
CHAT: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Count as far as you like, from one to a hundred."}],
    "temperature": 0,
}
FIRST = {"allowed_token_ids": [300, 301]}
"""Whatever the model likes best, the first token is one of these two."""
MATRIX: dict[str, dict[str, Any]] = {
    "no limit": {},
    "max_tokens 1": {"max_tokens": 1, "ignore_eos": True},
    "max_tokens 2": {"max_tokens": 2, "ignore_eos": True},
    "max_completion_tokens 1": {"max_completion_tokens": 1, "ignore_eos": True},
    "max_completion_tokens 2": {"max_completion_tokens": 2, "ignore_eos": True},
    "both limits": {"max_tokens": 2, "max_completion_tokens": 2, "ignore_eos": True},
    "min_tokens 100": {"min_tokens": 100, "max_tokens": 120},
    "min_tokens above a limit of 1": {"min_tokens": 1, "max_tokens": 1},
    "stop token first": FIRST | {"stop_token_ids": [300, 301], "max_tokens": 20},
    "stop token first, after min_tokens": FIRST
    | {"stop_token_ids": [300, 301], "min_tokens": 3, "max_tokens": 20},
    "ignore_eos": {"ignore_eos": True, "max_tokens": 30},
    "n 2": {"n": 2, "max_tokens": 5, "ignore_eos": True},
    "n 2, one token": {"n": 2, "max_tokens": 1, "ignore_eos": True},
}
LENGTHS = {
    "max_tokens 1": 1,
    "max_tokens 2": 2,
    "max_completion_tokens 1": 1,
    "max_completion_tokens 2": 2,
} | {
    "both limits": 2,
    "ignore_eos": 30,
    "n 2": 10,
    "n 2, one token": 2,
}
"""Completion tokens of those that are known beforehand."""


class Answer(NamedTuple):
    texts: tuple[str, ...]
    reasons: tuple[str, ...]
    num_prompt: int
    num_completion: int


def ask(stack: Stack, fields: dict[str, Any], *, is_stream: bool) -> Answer:
    body = CHAT | fields
    if not is_stream:
        answer = post(stack.url, body, stack.keys["plain"])
        assert answer.status == 200, answer.body
        choices = sorted(answer.json["choices"], key=lambda choice: choice["index"])
        usage = answer.json["usage"]
        texts = tuple(choice["message"]["content"] for choice in choices)
        reasons = tuple(choice["finish_reason"] for choice in choices)
    else:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        answer = post(stack.url, body, stack.keys["plain"])
        assert answer.status == 200, answer.body
        num = fields.get("n", 1)
        pieces, ends = [""] * num, [""] * num
        for chunk in answer.chunks:
            assert "error" not in chunk, chunk
            for choice in chunk["choices"]:
                assert not ends[choice["index"]], "nothing comes after a final chunk"
                pieces[choice["index"]] += choice["delta"].get("content") or ""
                ends[choice["index"]] = choice["finish_reason"] or ""
        texts, reasons, usage = tuple(pieces), tuple(ends), answer.chunks[-1]["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    return Answer(texts, reasons, usage["prompt_tokens"], usage["completion_tokens"])


class Runs(NamedTuple):
    """Answers by case and whether they were streamed; ``num_prefills`` jobs made those of the pair."""

    pair: dict[tuple[str, bool], Answer]
    combined: dict[tuple[str, bool], Answer]
    num_prefills: int


@pytest.fixture(scope="module")
def runs(tiny_model: Path) -> Iterator[Runs]:
    env = {f"SUB100_{role}_MAX_MODEL_LEN": str(CONTEXT) for role in ("PREFILL", "DECODE", "INGRESS")}
    env |= {f"SUB100_{role}_DTYPE": "float32" for role in ("PREFILL", "DECODE")}
    env |= {"SUB100_SCHEDULER_DECODE_ALONE_TOKENS": "0"}
    cases = [(name, is_stream) for name in MATRIX for is_stream in (False, True)]
    with running_stack(tiny_model, engine=ENGINE, env={**PATIENT, **env}) as stack, watching(stack) as bus:
        mark = bus.mark()
        pair = {case: ask(stack, MATRIX[case[0]], is_stream=case[1]) for case in cases}
        num_prefills = len(bus.since(mark, ".prefill.job."))
        prefill = stack.replicas["prefill-1"]
        prefill.terminate()
        assert prefill.wait() == 0
        mark = bus.mark()
        combined = {case: ask(stack, MATRIX[case[0]], is_stream=case[1]) for case in cases}
        assert not bus.since(mark, ".prefill.job.")
        yield Runs(pair, combined, num_prefills)


@pytest.mark.parametrize("is_stream", [False, True], ids=["body", "stream"])
@pytest.mark.parametrize("name", MATRIX)
def test_answer_over_the_hand_over_is_a_combined_workers(runs: Runs, name: str, is_stream: bool) -> None:
    """P06: lengths, finish reasons and usage, the prompt counted once; no 4xx, no 5xx (``ask``)."""
    answer = runs.pair[name, is_stream]
    assert answer == runs.combined[name, is_stream]
    assert answer == runs.pair[name, not is_stream]
    assert answer.num_prompt == runs.pair["max_tokens 1", False].num_prompt
    assert answer.num_completion == LENGTHS.get(name, answer.num_completion)
    if name in LENGTHS:
        assert set(answer.reasons) == {"length"}


def test_ends_fall_where_they_were_asked_for(runs: Runs) -> None:
    """P06: the cases say something: the pair served them, a minimum holds, a stop on the first token ends
    there."""
    assert runs.num_prefills >= 2 * sum("n" not in fields for fields in MATRIX.values())
    answers = {name: runs.pair[name, False] for name in MATRIX}
    assert 100 <= answers["min_tokens 100"].num_completion <= 120
    assert answers["no limit"].num_completion > 2
    assert (answers["stop token first"].texts, answers["stop token first"].reasons) == (("",), ("stop",))
    assert answers["stop token first, after min_tokens"].num_completion >= 3

"""What a worker expects of a step with a prompt in it."""

import math

import pytest

from sub100_engine.api import Output, Work
from sub100_engine.worker.prompt_pace import PromptPace
from sub100_proto.sampling import Sampling

CHUNK = 512


@pytest.fixture
def pace() -> PromptPace:
    pace = PromptPace()
    pace.max_chunk_tokens = CHUNK
    return pace


def answered(pace: PromptPace, num_tokens: int, *, compute_s: float, num_cached: int = 0) -> None:
    first = Output(attempt="a", token_ids=[1], cached_tokens=num_cached, compute_ms=compute_s * 1e3)
    pace.answered(num_tokens, first)


def test_nothing_is_expected_without_a_prompt_and_anything_without_experience(pace: PromptPace) -> None:
    assert pace.step_s({}) == 0
    assert pace.step_s({"streams": 0}) == 0
    assert pace.step_s({"a": 1}) == math.inf


def test_step_takes_its_share_of_the_prompts_before(pace: PromptPace) -> None:
    answered(pace, 4 * CHUNK, compute_s=2.0)
    assert pace.step_s({"a": 4 * CHUNK}) == pytest.approx(0.5)
    assert pace.step_s({"a": CHUNK, "b": CHUNK, "stream": 0}) == pytest.approx(0.5)


def test_small_prompt_is_expected_by_small_ones_where_there_were_any(pace: PromptPace) -> None:
    answered(pace, CHUNK, compute_s=0.5)
    assert pace.step_s({"a": 64}) == pytest.approx(0.5)
    answered(pace, 64, compute_s=0.1)
    assert pace.step_s({"a": 64}) == pytest.approx(0.1)
    assert pace.step_s({"a": 64, "b": 500}) == pytest.approx(0.5), "they share a step"


def test_larger_chunk_and_longer_prompt_may_take_as_many_times_as_long(pace: PromptPace) -> None:
    answered(pace, 64, compute_s=0.1)
    assert pace.step_s({"a": 32, "b": 96}) == pytest.approx(0.1 * (128 / 64) * (96 / 64))
    answered(pace, CHUNK, compute_s=0.4)
    assert pace.step_s({"a": 10 * CHUNK}) == pytest.approx(4.0)


def test_cached_part_is_no_part_of_the_work_and_all_of_the_context(pace: PromptPace) -> None:
    answered(pace, 10 * CHUNK, num_cached=9 * CHUNK, compute_s=1.0)
    assert pace.step_s({"a": 10 * CHUNK}) == pytest.approx(1.0)
    answered(pace, CHUNK, num_cached=CHUNK, compute_s=9.0)
    assert pace.step_s({"a": 10 * CHUNK}) == pytest.approx(1.0), "nothing was computed"


def test_slowest_of_the_last_prompts_counts_and_is_forgotten(pace: PromptPace) -> None:
    answered(pace, CHUNK, compute_s=3.0)
    for _ in range(7):
        answered(pace, CHUNK, compute_s=0.5)
    assert pace.step_s({"a": CHUNK}) == pytest.approx(3.0)
    answered(pace, CHUNK, compute_s=0.5)
    assert pace.step_s({"a": CHUNK}) == pytest.approx(0.5)


def test_prompt_whose_tokens_are_scored_is_neither_expected_nor_learnt_from(pace: PromptPace) -> None:
    answered(pace, CHUNK, compute_s=0.5)
    sampling = Sampling(max_tokens=1, prompt_logprobs=5)
    pace.began(Work(attempt="a", prompt=[1], sampling=sampling))
    assert pace.step_s({"a": CHUNK, "b": CHUNK}) == math.inf
    answered(pace, CHUNK, compute_s=60.0)
    assert pace.step_s({"b": CHUNK}) == pytest.approx(0.5)

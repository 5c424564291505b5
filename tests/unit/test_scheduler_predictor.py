"""The predictor learns a worker's line from what prefills really took."""

import random

import pytest

from sub100_scheduler.predictor import PRIOR_FIXED_MS, PRIOR_MS_PER_KILOTOKEN, Predictor


def predict(
    predictor: Predictor, num_tokens: int, *, worker_id: str = "a", ahead: int = 0, chunk: int = 10_000
) -> float:
    return predictor.ttft_ms(worker_id, num_ahead=ahead, num_tokens=num_tokens, max_chunk_tokens=chunk)


def teach(
    predictor: Predictor, fixed_ms: float, ms_per_token: float, *, n: int, worker_id: str = "a"
) -> None:
    chance = random.Random(3)
    for _ in range(n):
        num_tokens = chance.randint(32, 2_048)
        ms = (fixed_ms + ms_per_token * num_tokens) * chance.uniform(0.9, 1.1)
        predictor.observe(worker_id, num_tokens=num_tokens, prefill_ms=ms)


def test_prior_stands_until_something_was_observed() -> None:
    assert predict(Predictor(), 1_000) == PRIOR_FIXED_MS + PRIOR_MS_PER_KILOTOKEN


@pytest.mark.parametrize(("fixed_ms", "ms_per_token"), [(2.0, 0.01), (5.0, 1.0), (20.0, 0.2)])
def test_prediction_comes_within_a_tenth_after_thirty_prefills(fixed_ms: float, ms_per_token: float) -> None:
    predictor = Predictor()
    teach(predictor, fixed_ms, ms_per_token, n=30)
    expected = fixed_ms + ms_per_token * 1_000
    assert predict(predictor, 1_000) == pytest.approx(expected, rel=0.1)


def test_prediction_follows_a_worker_that_became_slower() -> None:
    predictor = Predictor()
    teach(predictor, 5, 0.1, n=200)
    teach(predictor, 5, 0.3, n=200)
    assert predict(predictor, 1_000) == pytest.approx(305, rel=0.1)


def test_outlier_moves_a_learnt_line_little() -> None:
    predictor = Predictor()
    teach(predictor, 5, 0.1, n=100)
    before = predict(predictor, 1_000)
    predictor.observe("a", num_tokens=1_000, prefill_ms=30_000)
    assert predict(predictor, 1_000) < 1.5 * before


def test_equal_prompts_alone_never_make_the_line_unstable() -> None:
    predictor = Predictor()
    for _ in range(5_000):
        predictor.observe("a", num_tokens=512, prefill_ms=50)
    assert predict(predictor, 512) == pytest.approx(50, rel=0.02)
    predictor.observe("a", num_tokens=600, prefill_ms=60)
    assert 30 < predict(predictor, 512) < 80
    assert predict(predictor, 2_048) < 1_000


@pytest.mark.parametrize(
    ("num_tokens", "prefill_ms"),
    [(0, 5.0), (-1, 5.0), (100, 0.0), (100, -3.0), (100, float("nan")), (100, 1e9)],
)
def test_impossible_measurement_teaches_nothing(num_tokens: int, prefill_ms: float) -> None:
    predictor = Predictor()
    predictor.observe("a", num_tokens=num_tokens, prefill_ms=prefill_ms)
    assert predict(predictor, 1_000) == PRIOR_FIXED_MS + PRIOR_MS_PER_KILOTOKEN


def test_queue_ahead_counts_like_own_tokens_and_chunks_cost() -> None:
    predictor = Predictor()
    assert predict(predictor, 500, ahead=500) == predict(predictor, 1_000)
    assert predict(predictor, 1_000, chunk=250) == 4 * PRIOR_FIXED_MS + PRIOR_MS_PER_KILOTOKEN
    assert predict(predictor, 1_000, chunk=0) == PRIOR_FIXED_MS + PRIOR_MS_PER_KILOTOKEN


def test_new_worker_starts_from_what_the_fleet_has_taught() -> None:
    predictor = Predictor()
    teach(predictor, 5, 1.0, n=50)
    assert predict(predictor, 1_000, worker_id="new") == pytest.approx(1_005, rel=0.1)


def test_workers_have_lines_of_their_own_until_they_are_forgotten() -> None:
    predictor = Predictor()
    teach(predictor, 5, 0.1, n=50, worker_id="fast")
    teach(predictor, 5, 1.0, n=50, worker_id="slow")
    assert predict(predictor, 1_000, worker_id="fast") == pytest.approx(105, rel=0.1)
    assert predict(predictor, 1_000, worker_id="slow") == pytest.approx(1_005, rel=0.1)
    predictor.forget("fast")
    assert predict(predictor, 1_000, worker_id="fast") > 200

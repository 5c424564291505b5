"""Whether a worker takes a job."""

from sub100_engine.worker.claims import Claims
from sub100_proto.fleet import Limits

EPOCH = 7


def claims(*, max_jobs: int = 3, max_tokens: int = 100) -> Claims:
    return Claims(Limits(max_jobs=max_jobs, max_queued_tokens=max_tokens), EPOCH)


def test_claims_refuse_a_job_meant_for_another_life() -> None:
    assert claims().refusal("a", EPOCH, 10) == ""
    assert claims().refusal("a", EPOCH - 1, 10) == "stale_epoch"
    assert claims().refusal("a", EPOCH + 1, 10) == "stale_epoch"


def test_claims_refuse_while_draining() -> None:
    book = claims()
    book.is_draining = True
    assert book.refusal("a", EPOCH, 10) == "draining"


def test_claims_are_bounded_in_requests() -> None:
    book = claims(max_jobs=2)
    for attempt in ("a", "b"):
        assert book.refusal(attempt, EPOCH, 1) == ""
        assert book.take(attempt, 1)
    assert book.refusal("c", EPOCH, 1) == "queue_full"
    assert book.end("a")
    assert book.refusal("c", EPOCH, 1) == ""


def test_claims_are_bounded_in_tokens_but_always_take_one_job() -> None:
    book = claims(max_tokens=100)
    assert book.refusal("huge", EPOCH, 5000) == ""
    book.take("huge", 5000)
    assert book.refusal("small", EPOCH, 1) == "queue_full"
    book.end("huge")
    book.take("a", 60)
    assert book.refusal("b", EPOCH, 41) == "queue_full"
    assert book.refusal("b", EPOCH, 40) == ""


def test_claims_queue_a_prompt_until_its_first_token_only() -> None:
    """What runs is the engine's to bound; jobs are counted to their end."""
    book = claims(max_jobs=2, max_tokens=100)
    book.take("a", 90)
    assert book.refusal("b", EPOCH, 20) == "queue_full"
    book.answered("a")
    book.answered("a")
    assert (len(book), book.num_queued_tokens) == (1, 0)
    assert book.refusal("b", EPOCH, 100) == ""
    book.take("b", 100)
    book.end("a")
    book.answered("a")
    assert (len(book), book.num_queued_tokens) == (1, 100)


def test_claims_take_kv_into_a_full_queue() -> None:
    book = claims(max_jobs=2, max_tokens=100)
    book.take("a", 5000)
    assert book.refusal("b", EPOCH, 0) == ""
    book.take("b", 0)
    assert book.refusal("c", EPOCH, 0) == "queue_full"


def test_claims_end_a_job_once() -> None:
    book = claims(max_tokens=100)
    book.take("a", 90)
    assert book.end("a")
    assert not book.end("a")
    book.take("b", 90)
    assert book.refusal("c", EPOCH, 20) == "queue_full"


def test_claims_do_not_take_a_job_whose_abort_came_first() -> None:
    book = claims()
    book.remember_abort("a")
    assert not book.take("a", 10)
    assert len(book) == 0
    assert book.take("b", 10)


def test_claims_remember_a_bounded_number_of_early_aborts() -> None:
    book = claims(max_jobs=10)
    for i in range(5000):
        book.remember_abort(f"a{i}")
    assert book.take("a0", 1)
    assert not book.take("a4999", 1)

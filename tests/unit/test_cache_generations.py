"""Whom an invalidation concerns, and what a generation allows: pure."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sub100_cache.store.entries import Alias, Entry
from sub100_cache.store.generations import (
    Question,
    Standing,
    Token,
    standing_fields,
    standing_of,
    unpack,
)
from sub100_cache.store.log_place import Place
from sub100_proto.cache import CachedAnswer

ANSWER = CachedAnswer(
    model="m", pieces=("x",), finish_reason="stop", num_prompt_tokens=1, num_completion_tokens=1
)
DIGEST = b"d" * 32

scopes = st.one_of(st.just(b""), st.binary(min_size=32, max_size=32))
revisions = st.text(max_size=8)
questions = st.builds(Question, st.just("t"), scopes, revisions)
numbers = st.integers(min_value=1, max_value=2**53 - 1)


def entry(generation: int, stored_at_s: float = 100.0) -> Entry:
    return Entry(
        tenant="t",
        digest=DIGEST,
        stored_at_s=stored_at_s,
        expires_at_s=stored_at_s + 60,
        answer=ANSWER,
        generation=generation,
    )


@given(questions, questions)
def test_targets_concern_exactly_the_questions_that_match_what_was_given(
    question: Question, invalidated: Question
) -> None:
    concerned = invalidated.target() in question.targets()

    assert concerned == (
        invalidated.scope in (b"", question.scope) and invalidated.revision in ("", question.revision)
    )


@given(questions, questions)
def test_target_differs_where_scope_or_revision_does(one: Question, other: Question) -> None:
    assume(one != other)

    assert one.target() != other.target()


@pytest.mark.parametrize("scope", [b"s", b"s" * 31, b"s" * 33])
def test_target_refuses_a_scope_that_could_run_into_the_revision(scope: bytes) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Question("t", scope, "r").target()


@given(questions, st.data())
def test_standing_is_the_greatest_mark_of_the_record(question: Question, data: st.DataObject) -> None:
    half = len(standing_fields(question)) // 2
    marks = [data.draw(numbers), *(data.draw(st.one_of(st.none(), numbers)) for _ in range(half - 1))]
    times = [data.draw(st.one_of(st.none(), st.integers(0, 2**32))) for _ in range(half)]

    values = [None if mark is None else str(mark).encode() for mark in [*marks, *times]]
    standing = standing_of(values)

    assert standing.number == max(mark for mark in marks if mark is not None)
    assert standing.before_s == max((time for time in times if time is not None), default=0)


@given(numbers, numbers)
def test_standing_allows_only_its_own_number(number: int, other: int) -> None:
    assume(number != other)

    assert Standing(number).allows(entry(number))
    assert not Standing(number).allows(entry(other))
    assert not Standing().allows(entry(0))


def test_standing_allows_what_was_stored_at_its_time_and_later() -> None:
    standing = Standing(7, before_s=100.0)

    assert [standing.allows(entry(7, at_s)) for at_s in (99.999, 100.0, 101.0)] == [False, True, True]
    assert standing.allows(Alias(tenant="t", digest=DIGEST, target=DIGEST, generation=7))


@given(numbers, st.integers(0, 2**63), st.integers(0, 2**63))
def test_token_survives_the_wire(number: int, identity: int, position: int) -> None:
    token = Token(number, Place(identity, position))

    assert unpack(token.packed()) == token


@pytest.mark.parametrize("generation", [b"", b"x", b"x" * 16, b"x" * 23, b"x" * 25, bytes(24)])
def test_token_is_none_for_what_no_lookup_gave(generation: bytes) -> None:
    assert unpack(generation) is None


@pytest.mark.parametrize("mark", [b"junk", b"", b"-5", b"0", b"1.5", b"\xff", str(2**53 + 1).encode()])
def test_standing_of_a_mark_that_is_no_generation_allows_nothing(mark: bytes) -> None:
    fields = standing_fields(Question("t"))

    standing = standing_of([mark, *(None for _ in fields[1:])])

    assert standing == Standing(is_spoiled=True)
    assert not standing.allows(entry(0))

import asyncio

import pytest

from sub100_ingress.attempts import Attempt, AttemptLost, AttemptTable
from sub100_ingress.strays import Stray, Strays
from sub100_proto import codec, subjects
from sub100_proto.jobs import Accepted, Busy
from sub100_proto.placement import WorkerRef
from sub100_proto.stream import Failed, FirstToken, StreamBatch, Timing, Tokens
from sub100_shared.bus import Incoming
from sub100_shared.clock import monotonic_ms

WORKER = WorkerRef(worker_id="w1", epoch=7)


def attempt(position: int = 0, max_buffered: int = 100) -> Attempt:
    return Attempt(WORKER, "decode", position, max_buffered)


def batch(*events: FirstToken | Tokens | Failed, worker_id: str = "w1") -> Incoming:
    data = codec.encode(StreamBatch(worker_id, 7, events))
    return Incoming(subjects.stream_events("local", "in-1"), data, "", {})


def claim(nonce: str, payload: bytes = b"", status: str = "") -> Incoming:
    subject = subjects.stream_claim("local", "in-1", nonce)
    return Incoming(subject, payload, "", {"Status": status} if status else {})


async def test_attempt_gives_tokens_in_order_and_once() -> None:
    a = attempt(1)
    for event in (
        Tokens("", 1, (10, 11)),
        Tokens("", 2, (11, 12)),
        Tokens("", 1, (10,)),
        Tokens("", 4, (13,)),
    ):
        a.accept(event)
    got: list[int] = []
    for _ in range(3):
        taken = await a.next()
        assert isinstance(taken, Tokens)
        got += taken.ids
    assert got == [10, 11, 12, 13]


async def test_attempt_takes_nothing_past_a_gap_and_says_where_it_is() -> None:
    a = attempt(1)
    a.accept(Tokens("", 3, (12,)))
    a.accept(Tokens("", 4, (13,)))
    assert a.take_gap() == 1
    assert a.take_gap() is None
    a.accept(Tokens("", 1, (10, 11, 12), "stop"))
    event = await a.next()
    assert isinstance(event, Tokens)
    assert (event.ids, event.finish_reason) == ((10, 11, 12), "stop")
    assert a.gap_at is None


@pytest.mark.parametrize("finish_reason", ["", "stop"])
async def test_attempt_whose_buffer_is_full_is_lost_without_a_hole(finish_reason: str) -> None:
    """Not even if what did not fit was the last event, and not with what comes when there is room again."""
    a = attempt(0, max_buffered=3)
    for position in range(3):
        a.accept(Tokens("", position, (position,)))
    a.accept(Tokens("", 3, (3,), finish_reason))
    got = [await a.next()]
    a.accept(Tokens("", 4, (4,), "stop"))
    got += [await a.next(), await a.next()]
    with pytest.raises(AttemptLost) as lost:
        await a.next()
    assert [event.ids for event in got if isinstance(event, Tokens)] == [(0,), (1,), (2,)]
    assert (lost.value.code, lost.value.elsewhere, a.needs_abort) == ("slow_client", False, True)


async def test_attempt_takes_a_last_event_without_tokens() -> None:
    a = attempt(3)
    a.accept(Tokens("", 3, (), "stop"))
    event = await a.next()
    assert isinstance(event, Tokens)
    assert event.finish_reason == "stop"
    assert a.is_over


async def test_attempt_delivers_what_arrived_before_it_reports_the_loss() -> None:
    a = attempt(1)
    a.accept(Tokens("", 1, (10,)))
    a.accept(Failed("", "worker_lost"))
    assert isinstance(await a.next(), Tokens)
    with pytest.raises(AttemptLost) as lost:
        await a.next()
    assert (lost.value.code, lost.value.worker.worker_id, lost.value.elsewhere) == ("worker_lost", "w1", True)


async def test_attempt_that_is_over_cannot_be_lost_any_more() -> None:
    a = attempt(1)
    a.accept(Tokens("", 1, (10,), "length"))
    a.lose("worker_lost")
    assert isinstance(await a.next(), Tokens)
    assert a.is_over


async def test_attempt_wakes_its_reader_once_for_several_events() -> None:
    a = attempt(1)
    reader = asyncio.create_task(a.next())
    await asyncio.sleep(0)
    a.accept(Tokens("", 1, (10,)))
    a.accept(Tokens("", 2, (11,)))
    assert await reader == Tokens("", 1, (10,))
    assert await a.next() == Tokens("", 2, (11,))


async def test_attempt_is_lost_when_its_reader_is_too_slow() -> None:
    a = attempt(0, max_buffered=2)
    for position in range(3):
        a.accept(Tokens("", position, (5,)))
    assert isinstance(await a.next(), Tokens)
    assert isinstance(await a.next(), Tokens)
    with pytest.raises(AttemptLost) as lost:
        await a.next()
    assert (lost.value.code, lost.value.elsewhere) == ("slow_client", False)


async def test_claim_timer_loses_only_an_unclaimed_attempt() -> None:
    a, b = attempt(), attempt()
    a.claim(Accepted(worker_id="w1", epoch=7))
    a.lose_unclaimed()
    b.lose_unclaimed()
    a.accept(FirstToken("", 9, 0, Timing()))
    assert isinstance(await a.next(), FirstToken)
    with pytest.raises(AttemptLost):
        await b.next()


async def test_table_routes_events_by_nonce_and_drops_those_of_fenced_attempts() -> None:
    table, a, b = AttemptTable(Strays(monotonic_ms)), attempt(), attempt()
    table.add(a)
    table.add(b)
    table.remove(b)
    table.on_message(batch(FirstToken(a.nonce, 9, 0, Timing()), FirstToken(b.nonce, 8, 0, Timing())))
    first = await a.next()
    assert isinstance(first, FirstToken)
    assert first.token == 9
    assert table.num_unknown_events == 1


async def test_table_drops_events_of_another_worker_with_the_right_nonce() -> None:
    table, a = AttemptTable(Strays(monotonic_ms)), attempt()
    table.add(a)
    table.on_message(batch(FirstToken(a.nonce, 9, 0, Timing()), worker_id="intruder"))
    assert table.num_unknown_events == 1
    assert not a.claimed


async def test_table_tells_of_events_that_belong_to_no_attempt() -> None:
    """Not those that may have crossed an abort, nor those of a known attempt from elsewhere."""
    strays = Strays(monotonic_ms)
    table, a, fenced = AttemptTable(strays), attempt(), attempt()
    for own in (a, fenced):
        table.add(own)
    table.remove(fenced)
    table.on_message(batch(Tokens("x", 0, (9,)), Tokens(a.nonce, 0, (9,)), Tokens(fenced.nonce, 0, (9,))))
    table.on_message(batch(Tokens(a.nonce, 1, (9,)), worker_id="intruder"))
    assert strays.take() == [Stray("x", "w1", "decode")]
    assert table.num_unknown_events == 3


async def test_table_loses_the_attempt_when_nobody_listens_for_its_job() -> None:
    table, a = AttemptTable(Strays(monotonic_ms)), attempt()
    table.add(a)
    table.on_message(claim(a.nonce, status="503"))
    with pytest.raises(AttemptLost, match="worker_lost"):
        await a.next()


async def test_table_loses_the_attempt_with_the_code_of_a_busy_worker() -> None:
    table, a = AttemptTable(Strays(monotonic_ms)), attempt()
    table.add(a)
    table.on_message(claim(a.nonce, codec.encode(Busy(worker_id="w1", epoch=7, code="queue_full"))))
    with pytest.raises(AttemptLost, match="queue_full") as lost:
        await a.next()
    assert lost.value.is_refusal


@pytest.mark.parametrize("garbage", [b"", b"\xff" * 40, b"\x93\xa1w\x01\x91\x92\xa1q\x01"])
async def test_table_survives_garbage(garbage: bytes) -> None:
    table, a = AttemptTable(Strays(monotonic_ms)), attempt()
    table.add(a)
    table.on_message(Incoming(subjects.stream_events("local", "in-1"), garbage, "", {}))
    table.on_message(batch(FirstToken(a.nonce, 9, 0, Timing())))
    assert isinstance(await a.next(), FirstToken)


def test_nonces_differ() -> None:
    assert len({attempt().nonce for _ in range(1000)}) == 1000


async def test_table_asks_for_what_was_lost_while_the_bus_was_away() -> None:
    table, a, over = AttemptTable(Strays(monotonic_ms)), attempt(1), attempt(1)
    table.add(a)
    table.add(over)
    a.accept(Tokens("", 1, (10, 11)))
    over.accept(Tokens("", 1, (10,), "stop"))
    table.on_reconnect(connected=False)
    assert a.take_gap() is None
    table.on_reconnect(connected=True)
    assert a.take_gap() == 3
    assert over.take_gap() is None
    a.accept(Tokens("", 5, (14,)))
    assert a.take_gap() is None
    a.accept(Tokens("", 3, (12,)))
    a.accept(Tokens("", 6, (15,)))
    assert a.take_gap() == 4


async def test_prefill_attempt_is_over_with_its_first_token_and_needs_no_abort() -> None:
    a = Attempt(WORKER, "prefill", 0, 100)
    a.accept(FirstToken("", 9, 0, Timing()))
    assert a.is_over
    a.lose("worker_lost")
    assert isinstance(await a.next(), FirstToken)


async def test_attempt_that_the_engine_refuses_as_wrong_is_not_tried_elsewhere() -> None:
    a = attempt(1)
    a.accept(Failed("", "invalid_value", "top_k"))
    with pytest.raises(AttemptLost) as lost:
        await a.next()
    assert (lost.value.code, lost.value.elsewhere) == ("invalid_value", False)


async def test_log_probabilities_of_known_tokens_are_dropped_with_them() -> None:
    a = attempt()
    a.accept(Tokens("", 0, (10, 11), logprobs=b"AAAAAAAABBBBBBBB"))
    a.accept(Tokens("", 1, (11, 12, 13), logprobs=b"BBBBBBBBCCCCCCCCDDDDDDDD"))
    await a.next()
    rest = await a.next()
    assert isinstance(rest, Tokens)
    assert (rest.position, rest.ids, rest.logprobs) == (2, (12, 13), b"CCCCCCCCDDDDDDDD")


async def test_what_a_first_event_told_is_taken_once_though_it_comes_again_with_more_tokens() -> None:
    a = attempt(1)
    told = Tokens("", 1, (10,), "", Timing(1, 2, 3), 4, 5, b"", b"rows")
    again = Tokens("", 1, (10, 11), "stop", Timing(1, 2, 3), 4, 5, b"", b"rows")
    a.accept(told)
    a.accept(again)
    assert await a.next() == told
    assert await a.next() == Tokens("", 2, (11,), "stop")

"""Coalescing, the ring for Resend, and a connection that comes and goes."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.patience import PATIENCE_S

from sub100_decode.service import DecodeRole
from sub100_engine.api import Output
from sub100_engine.worker.streams import Stream, Streams
from sub100_proto import codec
from sub100_proto.stream import Failed, StreamBatch, Timing, Tokens
from sub100_shared.bus import BusUnavailable, PayloadTooLarge
from sub100_shared.errors import http_status


class Wire:
    """What a bus would carry."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, StreamBatch]] = []
        self.is_cut = False
        self.max_bytes = 1 << 20
        self.takes = asyncio.Event()
        self.takes.set()
        self.was_asked = asyncio.Event()

    async def publish(self, subject: str, payload: bytes) -> None:
        self.was_asked.set()
        await self.takes.wait()
        if self.is_cut:
            raise BusUnavailable
        if len(payload) > self.max_bytes:
            raise PayloadTooLarge(len(payload), self.max_bytes)
        self.sent.append((subject, codec.decode_stream_batch(payload)))

    def batches(self, subject: str) -> list[list[tuple[str, int, tuple[int, ...]]]]:
        return [
            [(e.attempt, e.position, e.ids) for e in batch.events if isinstance(e, Tokens)]
            for sent_to, batch in self.sent
            if sent_to == subject
        ]


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
async def streams(wire: Wire) -> AsyncIterator[Streams]:
    book = Streams("w1", 5, wire.publish)
    sender = asyncio.ensure_future(book.run())
    yield book
    sender.cancel()


def tell(streams: Streams, stream: Stream, ids: list[int], finish_reason: str = "") -> None:
    """What the decode role does with an output."""
    position = stream.position
    stream.tokens.extend(ids)
    stream.finish_reason = finish_reason
    streams.send(stream, Tokens(stream.attempt, position, tuple(ids), finish_reason))


async def flushed(streams: Streams) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await streams.flush()


async def test_streams_send_one_batch_per_step_and_ingress(streams: Streams, wire: Wire) -> None:
    a, b = streams.open("a", "ing1", 0), streams.open("b", "ing1", 3)
    other = streams.open("c", "ing2", 0)
    for step in range(2):
        for stream in (a, b, other):
            tell(streams, stream, [step])
        await flushed(streams)
    assert wire.batches("ing1") == [[("a", 0, (0,)), ("b", 3, (0,))], [("a", 1, (1,)), ("b", 4, (1,))]]
    assert wire.batches("ing2") == [[("c", 0, (0,))], [("c", 1, (1,))]]
    assert {(batch.worker_id, batch.epoch) for _, batch in wire.sent} == {("w1", 5)}


async def test_streams_resend_from_a_position_also_after_the_end(streams: Streams, wire: Wire) -> None:
    stream = streams.open("a", "ing1", 2)
    tell(streams, stream, [10, 11])
    assert streams.resend("a", 3)
    tell(streams, stream, [12], "stop")
    streams.close(stream)
    await flushed(streams)
    assert streams.resend("a", 4)
    await flushed(streams)
    assert wire.batches("ing1")[0] == [("a", 2, (10, 11)), ("a", 3, (11,)), ("a", 4, (12,))]
    last = wire.sent[-1][1].events[0]
    assert last == Tokens("a", 4, (12,), "stop")
    assert not streams.resend("a", 1)
    assert not streams.resend("nobody", 0)


async def test_streams_keep_ended_streams_within_bounds(streams: Streams) -> None:
    for i in range(1500):
        stream = streams.open(f"a{i}", "ing1", 0)
        stream.tokens.extend([1] * 100)
        streams.close(stream)
    assert not streams.resend("a0", 0)
    assert not streams.resend("a800", 0)
    assert streams.resend("a1499", 0)


async def test_streams_send_nothing_again_of_a_dropped_attempt(streams: Streams) -> None:
    stream = streams.open("a", "ing1", 0)
    tell(streams, stream, [1])
    streams.drop("a")
    assert streams.get("a") is None
    assert not streams.resend("a", 0)


async def test_streams_send_what_waited_when_the_connection_is_back(streams: Streams, wire: Wire) -> None:
    stream = streams.open("a", "ing1", 0)
    tell(streams, stream, [1])
    await flushed(streams)
    wire.is_cut = True
    tell(streams, stream, [2])
    await flushed(streams)
    streams.send(stream, Failed("a", "draining"))
    await flushed(streams)
    assert len(wire.sent) == 1
    wire.is_cut = False
    tell(streams, stream, [3])
    streams.send_unsent()
    await flushed(streams)
    assert wire.sent[1][1].events == (Tokens("a", 1, (2,)), Failed("a", "draining"), Tokens("a", 2, (3,)))


async def test_streams_bound_what_waits_for_the_connection(streams: Streams, wire: Wire) -> None:
    stream = streams.open("a", "ing1", 0)
    wire.is_cut = True
    for _ in range(100):
        for _ in range(1000):
            tell(streams, stream, [1])
        await flushed(streams)
    wire.is_cut = False
    streams.send_unsent()
    await flushed(streams)
    assert sum(len(batch.events) for _, batch in wire.sent) == 16_000


async def test_streams_bound_what_waits_for_a_bus_that_takes_nothing(streams: Streams, wire: Wire) -> None:
    """What is lost is still in the ring: it is asked for, as any gap is."""
    stream = streams.open("a", "ing1", 0)
    wire.takes.clear()
    tell(streams, stream, [0])
    await wire.was_asked.wait()
    for token in range(1, 100_000):
        tell(streams, stream, [token])
    wire.takes.set()
    await flushed(streams)
    num_sent = sum(len(batch.events) for _, batch in wire.sent)
    assert num_sent == 1 + 16_384
    wire.sent.clear()
    assert streams.resend("a", num_sent)
    await flushed(streams)
    assert wire.batches("ing1") == [[("a", num_sent, tuple(range(num_sent, 100_000)))]]


async def test_streams_send_one_by_one_what_is_too_much_for_a_message(streams: Streams, wire: Wire) -> None:
    """And end the attempt whose event is too large by itself: nobody would ever hear of it."""
    wire.max_bytes = 2_000
    for attempt in ("a", "b", "c"):
        tell(streams, streams.open(attempt, "ing1", 0), list(range(300 if attempt == "a" else 10_000)))
    tell(streams, streams.open("d", "ing1", 0), [4])
    await flushed(streams)
    told = [event for _, batch in wire.sent for event in batch.events]
    assert [(event.attempt, type(event)) for event in told] == [
        ("a", Tokens),
        ("b", Failed),
        ("c", Failed),
        ("d", Tokens),
    ]
    assert isinstance(told[1], Failed)
    assert http_status(told[1].code) == 413


def test_log_probabilities_are_kept_and_told_again_with_their_tokens() -> None:
    stream = Stream("a", "events", 3)
    stream.tokens.extend([7, 8, 9])
    stream.keep_logprobs(b"AAAAAAAABBBBBBBB", b"prompt!!" * 5)
    stream.keep_logprobs(b"CCCCCCCC", b"")
    assert stream.cost == 3 + (24 + 40) // 36
    assert stream.again(4) == Tokens("a", 4, (8, 9), logprobs=b"BBBBBBBBCCCCCCCC")
    assert stream.again(6) == Tokens("a", 6, ())
    assert stream.again(3).prompt_logprobs == b"prompt!!" * 5


async def test_first_event_that_was_lost_comes_again_with_all_that_it_told(
    streams: Streams, wire: Wire
) -> None:
    stream = streams.open("a", "ing1", 1)
    decode = DecodeRole()
    first = Output(
        attempt="a",
        token_ids=[10],
        cached_tokens=3,
        transferred_tokens=4,
        queue_ms=1.0,
        transfer_ms=2.0,
        compute_ms=5.0,
        logprobs=b"AAAAAAAA",
        prompt_logprobs=b"prompt!!",
    )
    decode.on_output(streams, stream, first)
    decode.on_output(streams, stream, Output(attempt="a", token_ids=[11, 12], logprobs=b"BBBBBBBBCCCCCCCC"))
    await flushed(streams)
    wire.sent.clear()
    assert streams.resend("a", 1)
    assert streams.resend("a", 2)
    await flushed(streams)
    assert wire.sent[0][1].events == (
        Tokens(
            "a", 1, (10, 11, 12), "", Timing(1.0, 2.0, 5.0), 3, 4, b"AAAAAAAABBBBBBBBCCCCCCCC", b"prompt!!"
        ),
        Tokens("a", 2, (11, 12), logprobs=b"BBBBBBBBCCCCCCCC"),
    )

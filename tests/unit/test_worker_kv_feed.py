"""KV events: numbered, and a dump that agrees with them."""

import asyncio

from tests.patience import PATIENCE_S

from sub100_engine.api import KvChange
from sub100_engine.worker.kv_feed import KvFeed
from sub100_proto import blocks, codec
from sub100_proto.fleet import KvEvents
from sub100_shared.bus import BusUnavailable


def block(number: int) -> bytes:
    return number.to_bytes(blocks.HASH_BYTES, "little")


class Wire:
    def __init__(self) -> None:
        self.sent: list[KvEvents] = []
        self.is_cut = False
        self.came = asyncio.Event()

    async def publish(self, payload: bytes) -> None:
        self.came.set()
        if self.is_cut:
            raise BusUnavailable
        self.sent.append(codec.decode_kv_events(payload))

    async def carried(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self.came.wait()
        self.came.clear()


async def test_kv_feed_numbers_changes_and_dumps_what_they_add_up_to() -> None:
    wire = Wire()
    feed = KvFeed("w1", 5, wire.publish)
    feed.on_change(KvChange(stored=[block(1), block(2)]))
    await wire.carried()
    feed.on_change(KvChange(removed=[block(1)], stored=[block(3)]))
    await wire.carried()
    assert [(e.seq, e.epoch, e.stored, e.removed) for e in wire.sent] == [
        (1, 5, block(1) + block(2), b""),
        (2, 5, block(3), block(1)),
    ]
    dump = feed.dump()
    assert (dump.seq, set(blocks.split(dump.hashes))) == (2, {block(2), block(3)})


async def test_kv_feed_empties_the_dump_when_the_cache_was_cleared() -> None:
    wire = Wire()
    feed = KvFeed("w1", 5, wire.publish)
    feed.on_change(KvChange(stored=[block(1)]))
    feed.on_change(KvChange(cleared=True, stored=[block(2)]))
    await wire.carried()
    assert feed.dump().hashes == block(2)


async def test_kv_feed_leaves_a_gap_for_what_could_not_be_sent() -> None:
    wire = Wire()
    feed = KvFeed("w1", 5, wire.publish)
    wire.is_cut = True
    feed.on_change(KvChange(stored=[block(1)]))
    await wire.carried()
    wire.is_cut = False
    feed.on_change(KvChange(stored=[block(2)]))
    await wire.carried()
    assert [e.seq for e in wire.sent] == [2]


async def test_kv_feed_of_a_new_life_makes_schedulers_ask_for_a_dump() -> None:
    wire = Wire()
    feed = KvFeed("w1", 6, wire.publish)
    feed.adopt(block(1) + block(2))
    assert feed.seq == 1
    feed.on_change(KvChange(stored=[block(3)]))
    await wire.carried()
    assert wire.sent[0].seq == 2
    assert len(blocks.split(feed.dump().hashes)) == 3

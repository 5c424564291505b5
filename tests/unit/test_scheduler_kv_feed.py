"""The index follows numbered KV events and asks for a dump whenever it cannot be sure."""

from tests.unit.scheduler_beats import beat

from sub100_proto.fleet import KvDump, KvEvents
from sub100_scheduler.kv_feed import MAX_WAITING, STEP_BLOCKS, KvFeed
from sub100_scheduler.prefix_index import PrefixIndex


def h(*names: int) -> bytes:
    return b"".join(name.to_bytes(8, "little") for name in names)


def events(
    seq: int, *, stored: bytes = b"", removed: bytes = b"", cleared: bool = False, epoch: int = 1
) -> KvEvents:
    return KvEvents(worker_id="a", epoch=epoch, seq=seq, stored=stored, removed=removed, cleared=cleared)


def dump(seq: int, hashes: bytes, *, epoch: int = 1) -> KvDump:
    return KvDump(worker_id="a", epoch=epoch, seq=seq, hashes=hashes)


def feed(*, synced_at: int | None = 0) -> tuple[KvFeed, PrefixIndex]:
    index = PrefixIndex(10_000)
    kv_feed = KvFeed(index)
    kv_feed.join(beat("a"))
    if synced_at is not None:
        kv_feed.on_dump(dump(synced_at, b""))
    return kv_feed, index


def test_new_worker_wants_a_dump() -> None:
    kv_feed, _ = feed(synced_at=None)
    assert kv_feed.wanting == ["a"]
    kv_feed.on_dump(dump(0, b""))
    assert kv_feed.wanting == []


def test_events_in_order_are_applied_removed_before_stored() -> None:
    kv_feed, index = feed()
    kv_feed.on_events(events(1, stored=h(1, 2)))
    kv_feed.on_events(events(2, removed=h(2, 3), stored=h(3)))
    assert index.match(h(1, 2)) == {"a": 1}
    assert index.match(h(3)) == {"a": 1}
    kv_feed.on_events(events(3, cleared=True, stored=h(4)))
    assert index.match(h(1)) == {}
    assert index.match(h(4)) == {"a": 1}


def test_gap_wants_a_dump_and_events_after_it_wait() -> None:
    kv_feed, index = feed()
    kv_feed.on_events(events(1, stored=h(1)))
    kv_feed.on_events(events(3, stored=h(3)))
    assert (kv_feed.wanting, kv_feed.num_gaps) == (["a"], 1)
    assert index.match(h(3)) == {}
    kv_feed.on_events(events(4, removed=h(1)))
    kv_feed.on_dump(dump(3, h(1, 2, 3)))
    assert kv_feed.wanting == []
    assert index.match(h(1)) == {}
    assert index.match(h(2, 3)) == {"a": 2}


def test_event_that_the_dump_covers_is_not_applied_again() -> None:
    kv_feed, index = feed(synced_at=None)
    kv_feed.on_events(events(1, stored=h(1)))
    kv_feed.on_dump(dump(2, b""))
    kv_feed.on_events(events(2, stored=h(1)))
    assert index.match(h(1)) == {}


def test_gap_among_the_waiting_events_wants_another_dump() -> None:
    kv_feed, _ = feed(synced_at=None)
    for seq in (1, 2, 5):
        kv_feed.on_events(events(seq))
    kv_feed.on_dump(dump(1, b""))
    assert kv_feed.wanting == ["a"]
    kv_feed.on_dump(dump(5, b""))
    assert kv_feed.wanting == []


def test_waiting_events_are_bounded_and_what_fell_out_wants_another_dump() -> None:
    kv_feed, _ = feed(synced_at=None)
    for seq in range(1, MAX_WAITING + 10):
        kv_feed.on_events(events(seq))
    kv_feed.on_dump(dump(0, b""))
    assert kv_feed.wanting == ["a"]


def test_last_event_lost_is_noticed_by_the_second_heartbeat() -> None:
    kv_feed, _ = feed()
    kv_feed.on_heartbeat(beat("a", kv_seq=1))
    assert kv_feed.wanting == []
    kv_feed.on_heartbeat(beat("a", kv_seq=1))
    assert kv_feed.wanting == ["a"]


def test_heartbeat_that_overtook_its_event_is_no_loss() -> None:
    kv_feed, _ = feed()
    kv_feed.on_heartbeat(beat("a", kv_seq=1))
    kv_feed.on_events(events(1, stored=h(1)))
    kv_feed.on_heartbeat(beat("a", kv_seq=1))
    assert kv_feed.wanting == []


def test_events_and_dumps_of_another_life_are_ignored() -> None:
    kv_feed, index = feed()
    kv_feed.on_events(events(1, stored=h(1), epoch=2))
    kv_feed.on_dump(dump(9, h(1), epoch=2))
    assert index.match(h(1)) == {}
    assert kv_feed.wanting == []


def test_worker_that_left_is_purged_and_late_events_do_not_bring_it_back() -> None:
    kv_feed, index = feed()
    kv_feed.on_events(events(1, stored=h(1)))
    kv_feed.leave("a")
    kv_feed.on_events(events(2, stored=h(2)))
    kv_feed.on_dump(dump(2, h(1, 2)))
    assert index.match(h(1)) == {}
    assert kv_feed.wanting == []


def test_ragged_event_wants_a_dump() -> None:
    kv_feed, _ = feed()
    kv_feed.on_events(events(1, stored=b"123"))
    assert kv_feed.wanting == ["a"]


def test_blocks_are_taken_once_a_starting_worker_knows_how_many_it_has() -> None:
    index = PrefixIndex(10_000)
    kv_feed = KvFeed(index)
    kv_feed.join(beat("a", state="starting", num_blocks=0))
    kv_feed.on_dump(dump(0, b""))
    kv_feed.on_heartbeat(beat("a", num_blocks=100))
    kv_feed.on_events(events(1, stored=h(1)))
    assert index.match(h(1)) == {"a": 1}


def test_large_dump_is_taken_in_steps_and_events_wait_for_its_end() -> None:
    kv_feed, index = feed(synced_at=None)
    names = range(1, 2 * STEP_BLOCKS + 2)
    steps = kv_feed.load_dump(dump(1, h(*names)))
    next(steps)
    assert index.num_blocks("a") == STEP_BLOCKS
    kv_feed.on_events(events(2, removed=h(2), stored=h(9_999)))
    assert kv_feed.wanting == ["a"]
    assert sum(1 for _ in steps) == 2
    assert kv_feed.wanting == []
    assert index.num_blocks("a") == len(names)
    assert index.match(h(1, 2)) == {"a": 1}


def test_dump_ends_when_its_worker_comes_back_in_between() -> None:
    kv_feed, index = feed(synced_at=None)
    steps = kv_feed.load_dump(dump(1, h(*range(2 * STEP_BLOCKS))))
    next(steps)
    kv_feed.join(beat("a", epoch=2))
    assert list(steps) == []
    assert index.num_blocks("a") == 0
    assert kv_feed.wanting == ["a"]


def test_ragged_dump_changes_nothing() -> None:
    kv_feed, index = feed()
    kv_feed.on_events(events(1, stored=h(1)))
    kv_feed.on_dump(dump(2, b"123"))
    assert index.match(h(1)) == {"a": 1}

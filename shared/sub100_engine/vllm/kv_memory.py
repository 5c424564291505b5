"""The engine's KV cache as bytes: blocks out, blocks in, and a checksum over them.

A layer is a matrix of 64-bit words, one row a block. Copies are one gather or one scatter a layer; numpy
releases the interpreter lock in both, so that engine steps go on.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Frame = Any
"""A layer's blocks on their way, flat: words, or a tensor of 64-bit integers in an accelerator's memory."""
Blocks = Sequence[tuple[int, int]]
"""Runs of neighbouring blocks: first, count."""

WORD_BYTES: Final = 8
CHECKSUM_BYTES: Final = 8


class KvMemory:
    """``layers[i][block]`` is that layer's block as words; ``description`` says what they mean.

    ``kind`` and ``device`` are what NIXL calls this memory.
    """

    kind = "DRAM"
    device = 0

    def __init__(self, layers: Sequence[Words], description: str) -> None:
        if not layers:
            raise ValueError("a KV cache without layers")
        self.layers = list(layers)
        self.layout = fingerprint(description, [layer.shape[1] for layer in layers])
        self.block_bytes = sum(layer.shape[1] for layer in layers) * WORD_BYTES
        self.max_layer_words = max(layer.shape[1] for layer in layers)

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def bases(self) -> tuple[int, ...]:
        """Where each layer starts, as an address in this process."""
        return tuple(layer.ctypes.data for layer in self.layers)

    @property
    def regions(self) -> list[tuple[int, int]]:
        """Address and length in bytes of each layer."""
        return [(layer.ctypes.data, layer.nbytes) for layer in self.layers]

    def row_bytes(self, layer: int) -> int:
        return int(self.layers[layer].shape[1]) * WORD_BYTES

    def num_words(self, layer: int, num_blocks: int) -> int:
        return int(self.layers[layer].shape[1]) * num_blocks

    def staging(self, num_words: int) -> tuple[Frame, int]:
        """Memory of the same kind, touched so that its first use costs nothing, and its address."""
        memory = np.empty(num_words, np.uint64)
        memory.fill(0)
        return memory, memory.ctypes.data

    def gather(self, layer: int, block_ids: Sequence[int], out: Words) -> None:
        """Copy blocks of a layer into ``out`` (flat, exactly as long as they are)."""
        source = self.layers[layer]
        rows = out.reshape(len(block_ids), source.shape[1])
        np.take(source, np.asarray(block_ids, np.intp), axis=0, out=rows, mode="clip")

    def scatter(self, layer: int, block_ids: Sequence[int], frame: Frame) -> None:
        """Copy a frame into blocks of a layer."""
        target = self.layers[layer]
        target[np.asarray(block_ids, np.intp)] = frame.reshape(len(block_ids), target.shape[1])

    def checksum(self, key: str, layer: int, blocks: Blocks) -> bytes:
        """8 bytes that a flipped bit, a lost word, blocks in another order, another layer or another key's
        payload change.

        It guards against accidents, not against a peer that knows the deployment secret.
        """
        rows = self.layers[layer]
        return _digest(key, layer, [rows[first : first + count] for first, count in blocks])

    def checksum_of(self, key: str, layer: int, frame: Frame, num_blocks: int) -> bytes:
        """The same of a frame that holds so many blocks."""
        return _digest(key, layer, [frame.reshape(num_blocks, -1)])


def from_tensors(tensors: Mapping[str, Any], num_blocks: int, description: str) -> KvMemory:
    """View vLLM's KV tensors without a copy; raises ValueError for memory that we cannot move."""
    import torch

    layers: list[Any] = []
    shapes: list[str] = []
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"KV cache of {name} is not a tensor")
        if tensor.shape[0] != num_blocks or not tensor.is_contiguous():
            raise ValueError(f"KV cache of {name} is not block-major: {tuple(tensor.shape)}")
        layers.append(tensor.view(num_blocks, -1).view(torch.int64))
        shapes.append(f"{tuple(tensor.shape[1:])}:{tensor.dtype}")
    whole = f"{description};{';'.join(shapes)}"
    if any(layer.device.type != "cpu" for layer in layers):
        from .device_memory import DeviceMemory

        return DeviceMemory(layers, whole)
    return KvMemory([layer.numpy().view(np.uint64) for layer in layers], whole)


def fingerprint(description: str, row_words: Sequence[int]) -> str:
    """What two engines must agree in to exchange KV."""
    return blake2b(f"{description};{list(row_words)}".encode(), digest_size=8).hexdigest()


def _digest(key: str, layer: int, parts: Sequence[Words]) -> bytes:
    reductions = (np.add.reduce, np.bitwise_xor.reduce)
    reduced = [reduce(part, axis=1, dtype=np.uint64) for reduce in reductions for part in parts]
    return digest(key, layer, int(parts[0].shape[1]), reduced)


def digest(key: str, layer: int, row_words: int, reduced: Sequence[npt.NDArray[Any]]) -> bytes:
    """Of the sums (modulo 2^64) and exclusive ors of each block's words, in order."""
    hashed = blake2b(f"{key}/{layer}/{row_words}".encode(), digest_size=CHECKSUM_BYTES)
    for values in reduced:
        hashed.update(values.data)
    return hashed.digest()


def runs(block_ids: Sequence[int]) -> list[tuple[int, int]]:
    """Neighbouring blocks as (first, count), in order."""
    found: list[tuple[int, int]] = []
    for block in block_ids:
        if found and block == sum(found[-1]):
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((block, 1))
    return found

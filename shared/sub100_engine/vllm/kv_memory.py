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

WORD_BYTES: Final = 8
CHECKSUM_BYTES: Final = 8


class KvMemory:
    """``layers[i][block]`` is that layer's block as words; ``description`` says what they mean."""

    def __init__(self, layers: Sequence[Words], description: str) -> None:
        if not layers:
            raise ValueError("a KV cache without layers")
        self.layers = list(layers)
        self.layout = fingerprint(description, [layer.shape[1] for layer in layers])
        self.block_bytes = sum(layer.shape[1] for layer in layers) * WORD_BYTES
        self.max_layer_words = max(layer.shape[1] for layer in layers)

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

    def gather(self, layer: int, block_ids: Sequence[int], out: Words) -> None:
        """Copy blocks of a layer into ``out`` (flat, exactly as long as they are)."""
        source = self.layers[layer]
        rows = out.reshape(len(block_ids), source.shape[1])
        np.take(source, np.asarray(block_ids, np.intp), axis=0, out=rows, mode="clip")

    def scatter(self, layer: int, block_ids: Sequence[int], words: Words) -> None:
        """Copy ``words`` (flat) into blocks of a layer."""
        target = self.layers[layer]
        target[np.asarray(block_ids, np.intp)] = words.reshape(len(block_ids), target.shape[1])


def from_tensors(tensors: Mapping[str, Any], num_blocks: int, description: str) -> KvMemory:
    """View vLLM's KV tensors without a copy; raises ValueError for memory that we cannot move."""
    import torch

    layers: list[Words] = []
    shapes: list[str] = []
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor) or tensor.device.type != "cpu":
            raise ValueError(f"KV cache of {name} is not in CPU memory: use the NIXL connector there")
        if tensor.shape[0] != num_blocks or not tensor.is_contiguous():
            raise ValueError(f"KV cache of {name} is not block-major: {tuple(tensor.shape)}")
        layers.append(tensor.view(num_blocks, -1).view(torch.int64).numpy().view(np.uint64))
        shapes.append(f"{tuple(tensor.shape[1:])}:{tensor.dtype}")
    return KvMemory(layers, f"{description};{';'.join(shapes)}")


def fingerprint(description: str, row_words: Sequence[int]) -> str:
    """What two engines must agree in to exchange KV."""
    return blake2b(f"{description};{list(row_words)}".encode(), digest_size=8).hexdigest()


def checksum(key: str, layer: int, words: Words, num_blocks: int) -> bytes:
    """8 bytes that a flipped bit, a lost word, blocks in another order, another layer or another key's
    payload change. ``words`` (flat) are that many blocks.

    It guards against accidents, not against a peer that knows the deployment secret.
    """
    return _digest(key, layer, [words.reshape(num_blocks, -1)])


def checksum_in_place(key: str, layer: int, rows: Words, blocks: Sequence[tuple[int, int]]) -> bytes:
    """The same over the blocks of a layer where they lie; ``blocks`` are ``runs``."""
    return _digest(key, layer, [rows[first : first + count] for first, count in blocks])


def _digest(key: str, layer: int, parts: Sequence[Words]) -> bytes:
    """Sums and exclusive ors of each block, hashed in order."""
    digest = blake2b(f"{key}/{layer}/{parts[0].shape[1]}".encode(), digest_size=CHECKSUM_BYTES)
    for reduce in (np.add.reduce, np.bitwise_xor.reduce):
        for part in parts:
            digest.update(reduce(part, axis=1, dtype=np.uint64))
    return digest.digest()


def runs(block_ids: Sequence[int]) -> list[tuple[int, int]]:
    """Neighbouring blocks as (first, count), in order."""
    found: list[tuple[int, int]] = []
    for block in block_ids:
        if found and block == sum(found[-1]):
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((block, 1))
    return found

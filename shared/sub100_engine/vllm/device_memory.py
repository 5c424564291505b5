"""A KV cache in an accelerator's memory, with ``KvMemory``'s interface and the same checksums.

NIXL reads it in place and into staging memory beside it; over TCP and shared memory the blocks are copied
through the host. Its operations are torch's, on the thread's current stream, and are over when they return.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .kv_memory import WORD_BYTES, Blocks, Frame, KvMemory, Words, digest


class DeviceMemory(KvMemory):
    """``layers[i][block]`` is that layer's block as 64-bit integers."""

    layers: list[Any]

    def __init__(self, layers: Sequence[Any], description: str) -> None:
        super().__init__(layers, description)
        device = layers[0].device
        self.kind = "DRAM" if device.type == "cpu" else "VRAM"
        self.device = device.index or 0
        self._device = device

    @property
    def bases(self) -> tuple[int, ...]:
        return tuple(layer.data_ptr() for layer in self.layers)

    @property
    def regions(self) -> list[tuple[int, int]]:
        return [(layer.data_ptr(), layer.numel() * WORD_BYTES) for layer in self.layers]

    def staging(self, num_words: int) -> tuple[Frame, int]:
        memory = torch.zeros(num_words, dtype=torch.int64, device=self._device)
        self._settle()
        return memory, memory.data_ptr()

    def gather(self, layer: int, block_ids: Sequence[int], out: Words) -> None:
        out.view(np.int64)[:] = self._rows(layer, block_ids).reshape(-1).cpu().numpy()

    def scatter(self, layer: int, block_ids: Sequence[int], frame: Frame) -> None:
        rows = self._on_device(frame).view(len(block_ids), -1)
        self.layers[layer].index_copy_(0, self._ids(block_ids), rows)
        self._settle()

    def checksum(self, key: str, layer: int, blocks: Blocks) -> bytes:
        ids = [block for first, count in blocks for block in range(first, first + count)]
        return self._digest(key, layer, self._rows(layer, ids))

    def checksum_of(self, key: str, layer: int, frame: Frame, num_blocks: int) -> bytes:
        return self._digest(key, layer, self._on_device(frame).view(num_blocks, -1))

    def _digest(self, key: str, layer: int, rows: Any) -> bytes:
        sums = [rows.sum(dim=1), _exclusive_or(rows)]
        return digest(key, layer, int(rows.shape[1]), [part.contiguous().cpu().numpy() for part in sums])

    def _rows(self, layer: int, block_ids: Sequence[int]) -> Any:
        return self.layers[layer].index_select(0, self._ids(block_ids))

    def _ids(self, block_ids: Sequence[int]) -> Any:
        return torch.tensor(list(block_ids), dtype=torch.int64, device=self._device)

    def _on_device(self, frame: Frame) -> Any:
        if isinstance(frame, torch.Tensor):
            return frame
        return torch.from_numpy(frame.view(np.int64)).to(self._device)

    def _settle(self) -> None:
        """What was begun is done: others read the memory without asking a stream."""
        if self._device.type != "cpu":
            torch.cuda.current_stream(self._device).synchronize()


def _exclusive_or(rows: Any) -> Any:
    """Of each row's words, by halves."""
    while rows.shape[1] > 1:
        half = rows.shape[1] // 2
        folded = rows[:, :half] ^ rows[:, half : 2 * half]
        if rows.shape[1] % 2:
            folded[:, 0] ^= rows[:, -1]
        rows = folded
    return rows[:, 0]

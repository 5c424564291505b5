"""Which worker holds which KV block: chain hash -> bit mask of workers.

A chain hash names the whole prefix that ends with its block, so a request's match is found by walking
its hashes until no worker is left. Hashes are 8 bytes and are held as integers. Memory is bounded twice:
a worker never counts for more blocks than it says it has, and all together for ``max_blocks``.

Every content of a worker has a bit of its own. A worker that leaves, or whose content is replaced by
a dump, gives its bit up: that costs nothing and takes effect at once; ``sweep`` erases it from the
masks piece by piece and then frees it for another.
"""

from typing import Final

from sub100_proto.blocks import HASH_BYTES

_CHUNK: Final = 64


class _Content:
    """The blocks of one worker and the bit that stands for them."""

    __slots__ = ("bit", "capacity", "hashes", "worker_id")

    def __init__(self, worker_id: str, bit: int, capacity: int) -> None:
        self.worker_id = worker_id
        self.bit = bit
        self.capacity = capacity
        self.hashes: set[int] = set()


class PrefixIndex:
    """Unknown workers hold nothing; calls for them change nothing."""

    def __init__(self, max_blocks: int) -> None:
        self._max_blocks = max_blocks
        self._masks: dict[int, int] = {}
        self._contents: dict[str, _Content] = {}
        self._by_bit: dict[int, _Content] = {}
        self._live = 0
        self._leaving: list[_Content] = []
        self._free_bits: list[int] = []
        self._num_bits = 0
        self.num_dropped = 0

    def __len__(self) -> int:
        """Distinct blocks, those of leaving workers included until they are swept."""
        return len(self._masks)

    def num_blocks(self, worker_id: str) -> int:
        content = self._contents.get(worker_id)
        return 0 if content is None else len(content.hashes)

    def join(self, worker_id: str, capacity: int) -> None:
        """Start with an empty content, whatever was known of the worker."""
        self.leave(worker_id)
        if self._free_bits:
            bit = self._free_bits.pop()
        else:
            bit = 1 << self._num_bits
            self._num_bits += 1
        content = _Content(worker_id, bit, capacity)
        self._contents[worker_id] = content
        self._by_bit[bit] = content
        self._live |= bit

    def resize(self, worker_id: str, capacity: int) -> None:
        """The worker holds at most so many blocks: it learns that while it starts."""
        content = self._contents.get(worker_id)
        if content is not None:
            content.capacity = capacity

    def leave(self, worker_id: str) -> None:
        content = self._contents.pop(worker_id, None)
        if content is not None:
            self._live &= ~content.bit
            del self._by_bit[content.bit]
            self._leaving.append(content)

    def replace(self, worker_id: str, hashes: bytes) -> None:
        """The worker holds exactly these blocks; raises ValueError on a ragged length."""
        content = self._contents.get(worker_id)
        if content is not None:
            self.join(worker_id, content.capacity)
            self.store(worker_id, hashes)

    def store(self, worker_id: str, hashes: bytes) -> None:
        """Add blocks; raises ValueError on a ragged length. What is over a bound is dropped and counted."""
        content = self._contents.get(worker_id)
        if content is None:
            return
        masks, held, bit = self._masks, content.hashes, content.bit
        for value in _values(hashes):
            mask = masks.get(value)
            if len(held) >= content.capacity or (mask is None and len(masks) >= self._max_blocks):
                self.num_dropped += value not in held
                continue
            masks[value] = bit if mask is None else mask | bit
            held.add(value)

    def remove(self, worker_id: str, hashes: bytes) -> None:
        """Remove blocks; those not held are ignored. Raises ValueError on a ragged length."""
        content = self._contents.get(worker_id)
        if content is None:
            return
        for value in _values(hashes):
            if value in content.hashes:
                content.hashes.remove(value)
                self._erase(value, content.bit)

    def match(self, hashes: bytes) -> dict[str, int]:
        """How many leading blocks each worker holds; workers without the first are absent.

        Walks in chunks: where everyone left holds all of a chunk, and nobody else does, it is one
        comparison at C speed.
        """
        found: dict[str, int] = {}
        left = self._live
        get = self._masks.get
        view = memoryview(hashes)[: len(hashes) // HASH_BYTES * HASH_BYTES].cast("Q")
        position = 0
        while left and position < len(view):
            masks = list(map(get, view[position : position + _CHUNK].tolist()))
            if masks.count(left) != len(masks):
                for offset, mask in enumerate(masks):
                    still = left & (mask or 0)
                    if still != left:
                        self._note(found, left & ~still, position + offset)
                        left = still
                        if not left:
                            return found
            position += len(masks)
        self._note(found, left, position)
        return found

    def sweep(self, max_entries: int) -> bool:
        """Erase up to so many entries of contents that left; True when none are left to erase."""
        while self._leaving and max_entries > 0:
            content = self._leaving[-1]
            while content.hashes and max_entries > 0:
                self._erase(content.hashes.pop(), content.bit)
                max_entries -= 1
            if not content.hashes:
                self._leaving.pop()
                self._free_bits.append(content.bit)
        return not self._leaving

    def _note(self, found: dict[str, int], mask: int, num_blocks: int) -> None:
        """Everyone in ``mask`` holds just so many leading blocks."""
        while num_blocks and mask:
            bit = mask & -mask
            found[self._by_bit[bit].worker_id] = num_blocks
            mask ^= bit

    def _erase(self, value: int, bit: int) -> None:
        mask = self._masks[value] & ~bit
        if mask:
            self._masks[value] = mask
        else:
            del self._masks[value]


def _values(hashes: bytes) -> list[int]:
    if len(hashes) % HASH_BYTES:
        raise ValueError(f"{len(hashes)} bytes are not whole block hashes")
    return memoryview(hashes).cast("Q").tolist()

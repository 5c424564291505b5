"""KV blocks: bounded, counted, shared by prefix, least recently used out first.

A block is *held* (refs > 0) or *free*; a free block keeps its hash, and so may be found again, until
it is needed for something else. Pure but for its own state.
"""

from collections import OrderedDict
from collections.abc import Sequence

from sub100_engine.api import KvChange


class Block:
    """``hash`` is set once its tokens are all computed and no other block has the same hash."""

    __slots__ = ("hash", "refs")

    def __init__(self) -> None:
        self.hash: bytes | None = None
        self.refs = 0


class BlockPool:
    """``num_blocks`` blocks. Changes of what can be found are collected for the KV listener."""

    def __init__(self, num_blocks: int) -> None:
        self._num_blocks = num_blocks
        self._free: OrderedDict[Block, None] = OrderedDict((Block(), None) for _ in range(num_blocks))
        self._by_hash: dict[bytes, Block] = {}
        self._stored: dict[bytes, None] = {}
        self._removed: dict[bytes, None] = {}

    @property
    def num_held(self) -> int:
        return self._num_blocks - len(self._free)

    @property
    def usage(self) -> float:
        return self.num_held / self._num_blocks

    def lookup(self, hashes: Sequence[bytes]) -> list[Block]:
        """The longest prefix of ``hashes`` that is here. Nothing is held by it."""
        found: list[Block] = []
        for block_hash in hashes:
            block = self._by_hash.get(block_hash)
            if block is None:
                break
            found.append(block)
        return found

    def take(self, cached: Sequence[Block], num_new: int) -> list[Block] | None:
        """Hold ``cached`` and ``num_new`` fresh blocks; None, and no change, if there are too few."""
        num_revived = sum(1 for block in cached if block.refs == 0)
        if len(self._free) - num_revived < num_new:
            return None
        for block in cached:
            if block.refs == 0:
                del self._free[block]
            block.refs += 1
        return [*cached, *(self._fresh() for _ in range(num_new))]

    def commit(self, block: Block, block_hash: bytes) -> None:
        """The block's tokens are computed: from now on it may be found. A twin keeps its place."""
        if block.hash is None and block_hash not in self._by_hash:
            block.hash = block_hash
            self._by_hash[block_hash] = block
            self._stored[block_hash] = None

    def release(self, blocks: Sequence[Block]) -> None:
        """Let go of one hold on each; a sequence's tail is reused before its head."""
        for block in reversed(blocks):
            block.refs -= 1
            if block.refs == 0:
                self._free[block] = None
                if block.hash is None:
                    self._free.move_to_end(block, last=False)

    def collect(self) -> KvChange | None:
        """What changed since the last call, fit for "removed before stored"."""
        if not self._stored and not self._removed:
            return None
        change = KvChange(stored=list(self._stored), removed=list(self._removed))
        self._stored.clear()
        self._removed.clear()
        return change

    def _fresh(self) -> Block:
        block, _ = self._free.popitem(last=False)
        if block.hash is not None:
            del self._by_hash[block.hash]
            if block.hash in self._stored:
                del self._stored[block.hash]
            else:
                self._removed[block.hash] = None
            block.hash = None
        block.refs = 1
        return block

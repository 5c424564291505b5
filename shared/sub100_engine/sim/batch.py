"""Continuous batching and chunked prefill: who computes how many tokens in the next step.

Pure but for its own state and the pool's. A sequence is *waiting* (no blocks) or *running* (blocks for
all its known tokens); a running one may still be pulling its KV. Decodes go first, then their draft tokens,
and prefills share what is left of the chunk in order of arrival.
"""

from collections import deque
from collections.abc import Iterator

import msgspec

from .block_pool import BlockPool
from .sequence import Sequence


class Step(msgspec.Struct, frozen=True):
    """What one engine step computes, and which sequences are to begin to pull. A chunk counts known tokens
    only; ``Sequence.num_drafts`` unverified ones are computed beside it."""

    chunks: list[tuple[Sequence, int]]
    pulls: list[Sequence]

    @property
    def num_decodes(self) -> int:
        return sum(1 for sequence, _ in self.chunks if sequence.is_decoding)

    @property
    def num_prefill_tokens(self) -> int:
        return sum(size for sequence, size in self.chunks if not sequence.is_decoding)

    @property
    def num_drafted_tokens(self) -> int:
        return sum(sequence.num_drafts for sequence, _ in self.chunks)


class Batch:
    """``num_drafts``: how many draft tokens a decode verifies in a step, as far as chunk and pool allow."""

    def __init__(
        self, pool: BlockPool, block_size: int, max_num_seqs: int, max_chunk_tokens: int, num_drafts: int = 0
    ) -> None:
        self._pool = pool
        self._block_size = block_size
        self._max_num_seqs = max_num_seqs
        self._max_chunk_tokens = max_chunk_tokens
        self._num_drafts = num_drafts
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []

    def __iter__(self) -> Iterator[Sequence]:
        return iter([*self._running, *self._waiting])

    @property
    def num_running(self) -> int:
        """Of which something is computed: those that pull their KV wait."""
        return sum(1 for sequence in self._running if not sequence.is_pulling)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting) + len(self._running) - self.num_running

    @property
    def num_waiting_tokens(self) -> int:
        """Tokens that must be computed before those that run or wait now make their first token."""
        pending = sum(s.num_pending for s in self._waiting if not s.wants_kv)
        return pending + sum(s.num_pending for s in self._running if not (s.is_decoding or s.is_pulling))

    def add(self, sequence: Sequence) -> None:
        self._waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out and free its blocks, wherever it is. Idempotent."""
        if sequence in self._running:
            self._running.remove(sequence)
        elif sequence in self._waiting:
            self._waiting.remove(sequence)
        self._pool.release(sequence.blocks)
        sequence.blocks = []

    def plan(self) -> Step:
        """The next step; its ``pulls`` are running and pulling from now on."""
        has_preempted = self._make_room()
        budget = self._max_chunk_tokens
        chunks: list[tuple[Sequence, int]] = []
        pulls: list[Sequence] = []
        for sequence in self._running:
            if sequence.is_decoding and budget and not sequence.is_pulling:
                chunks.append((sequence, 1))
                budget -= 1
        for sequence, _ in chunks:
            budget -= self._draft(sequence, budget)
        for sequence in self._running:
            size = min(sequence.num_pending, budget)
            if size and not sequence.is_pulling and not sequence.is_decoding:
                chunks.append((sequence, size))
                budget -= size
        while self._waiting and len(self._running) < self._max_num_seqs and budget:
            sequence = self._waiting[0]
            if (has_preempted and chunks) or not self._admit(sequence):
                break
            self._running.append(self._waiting.popleft())
            if sequence.wants_kv:
                sequence.is_pulling = True
                pulls.append(sequence)
                continue
            size = min(sequence.num_pending, budget)
            chunks.append((sequence, size))
            budget -= size
        return Step(chunks, pulls)

    def computed(self, sequence: Sequence, size: int) -> None:
        """``size`` more tokens of a running sequence have their KV: full blocks can be found."""
        before = sequence.num_computed // self._block_size
        sequence.num_computed += size
        after = sequence.num_computed // self._block_size
        sequence.extend_hashes(after, self._block_size)
        for index in range(before, after):
            self._pool.commit(sequence.blocks[index], sequence.hashes[index])

    def _draft(self, sequence: Sequence, budget: int) -> int:
        """Let a decode verify draft tokens in this step, in blocks that are free; returns how many. The
        drafter needs a step to follow, so an attempt's first step here has none."""
        sequence.num_drafts = 0
        wanted = min(self._num_drafts, budget) if sequence.is_told else 0
        if wanted <= 0:
            return 0
        size = self._block_size
        missing = -(-(len(sequence.tokens) + wanted) // size) - len(sequence.blocks)
        held = self._pool.take((), missing) if missing > 0 else []
        if held is not None:
            sequence.blocks.extend(held)
        sequence.num_drafts = min(wanted, len(sequence.blocks) * size - len(sequence.tokens))
        return sequence.num_drafts

    def _admit(self, sequence: Sequence) -> bool:
        """Hold the blocks of a waiting sequence; at least its last token is always computed."""
        reusable = sequence.num_prompt if sequence.wants_kv else len(sequence.tokens) - 1
        sequence.extend_hashes(reusable // self._block_size, self._block_size)
        cached = self._pool.lookup(sequence.hashes[: reusable // self._block_size])
        held = self._pool.take(cached, sequence.num_blocks_needed(self._block_size) - len(cached))
        if held is None:
            return False
        sequence.blocks = held
        sequence.num_computed = len(cached) * self._block_size
        if not sequence.is_told:
            sequence.cached_tokens = min(sequence.num_computed, sequence.num_prompt)
        return True

    def _make_room(self) -> bool:
        """Give each running sequence the block its newest token needs; the newest sequence yields first.

        A sequence that yields computes everything again later. The oldest always gets on, because one
        sequence fits into the pool.
        """
        has_preempted = False
        for sequence in list(self._running):
            if sequence.is_pulling or sequence not in self._running:
                continue
            missing = sequence.num_blocks_needed(self._block_size) - len(sequence.blocks)
            while missing > 0 and sequence in self._running:
                held = self._pool.take((), missing)
                if held is not None:
                    sequence.blocks.extend(held)
                    break
                self._preempt(next(s for s in reversed(self._running) if not s.is_pulling))
                has_preempted = True
        return has_preempted

    def _preempt(self, sequence: Sequence) -> None:
        self.remove(sequence)
        sequence.num_computed = 0
        sequence.num_drafts = 0
        sequence.wants_kv = False
        self._waiting.appendleft(sequence)

"""How long a step takes here that computes a chunk of a prompt, by the prompts that were; pure.

A step's time grows no faster than its tokens, and a token's no faster than the tokens before it. So a chunk
that is larger than those that were seen, or stands in a longer prompt, takes at most as many times as long.
"""

import math
from collections import deque
from collections.abc import Mapping
from typing import Final

import msgspec

from ..api import Output, Work

_NUM_KEPT: Final = 8
"""Prompts of one size (a power of two of tokens a step); the slowest of them counts."""


class _Seen(msgspec.Struct, frozen=True):
    """``num_tokens`` of a prompt, computed in steps of ``chunk_tokens`` that took ``step_s`` each."""

    num_tokens: int
    chunk_tokens: int
    step_s: float


class PromptPace:
    """``max_chunk_tokens`` bounds a step: the engine says it once it has started, before any prompt."""

    def __init__(self) -> None:
        self.max_chunk_tokens = 1
        self._seen: dict[int, deque[_Seen]] = {}
        self._scored: set[str] = set()

    def began(self, work: Work) -> None:
        """A prompt whose every token is scored takes longer than others, by no rule of ours."""
        if work.sampling.prompt_logprobs is not None:
            self._scored.add(work.attempt)

    def answered(self, num_tokens: int, first: Output) -> None:
        """A prompt (with the output before it, if it was taken up again) is computed; 0 tokens: none was."""
        num_computed = num_tokens - first.cached_tokens
        if num_computed <= 0 or first.attempt in self._scored:
            return
        num_steps = math.ceil(num_computed / self.max_chunk_tokens)
        chunk_tokens = math.ceil(num_computed / num_steps)
        alike = self._seen.setdefault(chunk_tokens.bit_length(), deque(maxlen=_NUM_KEPT))
        alike.append(_Seen(num_tokens, chunk_tokens, first.compute_ms / 1e3 / num_steps))

    def step_s(self, queued: Mapping[str, int]) -> float:
        """Of the longest step that is to be expected of prompts of so many tokens, by attempt: 0 if there are
        none, infinite if nobody knows."""
        self._scored &= queued.keys()
        num_tokens, longest = sum(queued.values()), max(queued.values(), default=0)
        if not num_tokens:
            return 0.0
        if self._scored or not self._seen:
            return math.inf
        chunk_tokens = min(num_tokens, self.max_chunk_tokens)
        sizes = [size for size in self._seen if size >= chunk_tokens.bit_length()]
        return max(
            seen.step_s * max(1.0, chunk_tokens / seen.chunk_tokens) * max(1.0, longest / seen.num_tokens)
            for seen in self._seen[min(sizes) if sizes else max(self._seen)]
        )

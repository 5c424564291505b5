"""What an operator may set of the simulated engine: ``SUB100_SIM_*``."""

from typing import Annotated

import msgspec

from .timing import PRESETS, TimingModel

Positive = Annotated[int, msgspec.Meta(ge=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]


class SimConfig(msgspec.Struct, frozen=True, kw_only=True):
    """``timing`` names a preset. ``tokenizer`` is a tokenizer.json, or a directory with one: answers are
    then readable text (``answer_file``'s, if given); without it they are arbitrary token ids below
    ``vocab_size``. Answers are ``answer_min_tokens`` to ``answer_max_tokens`` long. ``kv_host`` and
    ``kv_port`` are where the hand-over listens. ``speculative_tokens`` are drafted a step and ``acceptance``
    is the chance of each to be right. ``tensor_parallel`` and ``revision`` are told to the scheduler and
    change nothing else. The last three are for tests: see Faults.
    """

    model: str = "sim"
    timing: str = "zero"
    tokenizer: str = ""
    answer_file: str = ""
    answer_min_tokens: Positive = 8
    answer_max_tokens: Positive = 64
    vocab_size: Positive = 49_152
    dtype: str = "auto"
    block_size: Positive = 32
    num_blocks: Positive = 8_192
    max_model_len: Positive = 131_072
    max_num_seqs: Positive = 256
    max_chunk_tokens: Positive = 2_048
    speculative_tokens: Count = 0
    tensor_parallel: Positive = 1
    revision: str = ""
    acceptance: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.6
    kv_host: str = "127.0.0.1"
    kv_port: Count = 0
    lease_s: Annotated[float, msgspec.Meta(gt=0)] = 30.0
    pull_timeout_s: Annotated[float, msgspec.Meta(gt=0)] = 5.0
    die_after_steps: Count = 0
    hang_after_steps: Count = 0
    delay_ms: Annotated[float, msgspec.Meta(ge=0)] = 0.0

    @property
    def layout(self) -> str:
        """Engines of one model, block size and dtype may hand KV to each other."""
        return f"sim/{self.model}/{self.block_size}/{self.dtype}"

    def fault_line(self) -> str:
        """Why these values cannot work together, in one line; empty if they can."""
        if self.timing not in PRESETS:
            return f"unknown timing {self.timing!r} (known: {', '.join(PRESETS)})"
        if self.num_blocks * self.block_size < self.max_model_len:
            return (
                f"{self.num_blocks} blocks of {self.block_size} tokens cannot hold one sequence of"
                f" max_model_len {self.max_model_len}"
            )
        if self.max_num_seqs > self.max_chunk_tokens:
            return (
                f"max_num_seqs {self.max_num_seqs} is above max_chunk_tokens {self.max_chunk_tokens}:"
                " some decodes would never be scheduled"
            )
        if self.answer_min_tokens > self.answer_max_tokens:
            return f"answer_min_tokens {self.answer_min_tokens} is above {self.answer_max_tokens}"
        return ""

    def timing_model(self) -> TimingModel:
        return PRESETS[self.timing]

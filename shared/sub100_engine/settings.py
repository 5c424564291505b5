"""What a worker's environment says of its engine."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec

Positive = Annotated[int, msgspec.Meta(ge=1)]
SpeculativeMethod = Literal["off", "ngram", "draft_model", "eagle"]


class Speculation(msgspec.Struct, frozen=True, kw_only=True):
    """How draft tokens are made: ``num_tokens`` a step.

    ``ngram`` looks the last ``lookup_max`` to ``lookup_min`` tokens up in the sequence itself; the other
    two need ``model``, the directory of a draft model or of an EAGLE head.
    """

    method: SpeculativeMethod = "off"
    num_tokens: Positive = 4
    lookup_min: Positive = 2
    lookup_max: Positive = 5
    model: str = ""

    @property
    def is_on(self) -> bool:
        return self.method != "off"

    @property
    def name(self) -> str:
        """For people: ``ngram-4``; empty if off."""
        return f"{self.method}-{self.num_tokens}" if self.is_on else ""

    @property
    def has_kv(self) -> bool:
        """Whether the drafter keeps KV of its own, which then moves with the hand-over."""
        return self.method in ("draft_model", "eagle")

    def fault_line(self, role: str) -> str:
        """Why these values cannot work, in one line; empty if they can."""
        if self.has_kv and not self.model:
            return f"speculative method {self.method} needs SPECULATIVE_MODEL"
        if self.lookup_min > self.lookup_max:
            return (
                f"SPECULATIVE_LOOKUP_MIN {self.lookup_min} is above SPECULATIVE_LOOKUP_MAX {self.lookup_max}"
            )
        if role == "prefill" and self.method == "ngram":
            return "a prefill worker makes one token: n-gram speculation belongs to decode"
        return ""


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """``SUB100_PREFILL_*`` and ``SUB100_DECODE_*``.

    ``model``: a model directory (or, for vLLM, a Hugging Face id). ``served_name``: what clients call it.
    ``kv_host``: where handed-over KV is served from; only this address is bound. ``kv_transport``: how vLLM's
    KV moves (docs/kv-transfer.md); prefill and decode must say the same. ``kv_fault_after_s``: a worker whose
    transfers have failed with two peers for so long is not ready (worker/transfer_health.py). ``timing``: the
    simulated engine's preset. ``max_chunk_tokens`` bounds the tokens of one step: a long prompt is computed
    in chunks of that size less one token for each stream that decodes beside it. ``speculative_*``: see
    Speculation. A drafter with KV of its own must be set for the pool's prefill workers too. ``compile``:
    ``auto`` has vLLM compile the model on GPUs, ``on`` also on CPUs with a C++ compiler: on a small model
    that takes a tenth off a prompt's time and a quarter off a token's, and adds one to two minutes to a
    start.
    """

    model: str
    engine: Literal["vllm", "sim"] = "vllm"
    served_name: str = ""
    block_size: int = 32
    dtype: str = "auto"
    max_model_len: int = 0
    max_num_seqs: int = 32
    max_chunk_tokens: int = 512
    kv_cache_mib: int = 1024
    num_threads: int = 1
    compile: Literal["auto", "on", "off"] = "auto"
    kv_host: str = "127.0.0.1"
    kv_port: int = 0
    kv_transport: Literal["auto", "tcp", "shm", "nixl"] = "auto"
    lease_s: float = 30.0
    kv_fault_after_s: Annotated[float, msgspec.Meta(gt=0)] = 5.0
    timing: str = "zero"
    max_jobs: int = 256
    max_queued_tokens: int = 262_144
    pool: str = "default"
    speculative_method: SpeculativeMethod = "off"
    speculative_tokens: Positive = 4
    speculative_lookup_min: Positive = 2
    speculative_lookup_max: Positive = 5
    speculative_model: str = ""

    @property
    def speculation(self) -> Speculation:
        return Speculation(
            method=self.speculative_method,
            num_tokens=self.speculative_tokens,
            lookup_min=self.speculative_lookup_min,
            lookup_max=self.speculative_lookup_max,
            model=self.speculative_model,
        )

    @property
    def name(self) -> str:
        return self.served_name or Path(self.model).name

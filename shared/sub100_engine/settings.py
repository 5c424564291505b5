"""What a worker's environment says of its engine."""

from pathlib import Path
from typing import Literal

import msgspec


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """``SUB100_PREFILL_*`` and ``SUB100_DECODE_*``.

    ``model``: a model directory (or, for vLLM, a Hugging Face id). ``served_name``: what clients call it.
    ``kv_host``: where handed-over KV is served from; only this address is bound. ``timing``: the
    simulated engine's preset.
    """

    model: str
    engine: Literal["vllm", "sim"] = "vllm"
    served_name: str = ""
    block_size: int = 32
    max_model_len: int = 0
    max_num_seqs: int = 32
    max_chunk_tokens: int = 512
    kv_cache_mib: int = 1024
    num_threads: int = 1
    kv_host: str = "127.0.0.1"
    kv_port: int = 0
    lease_s: float = 30.0
    timing: str = "zero"
    max_jobs: int = 256
    max_queued_tokens: int = 262_144
    pool: str = "default"

    @property
    def name(self) -> str:
        return self.served_name or Path(self.model).name

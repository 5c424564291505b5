"""Which engine a worker runs: the choice is configuration, the import follows it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from sub100_proto.subjects import Role
from sub100_shared.config import Common, ConfigError, load
from sub100_shared.secret import derive

from .api import Engine


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker's environment says of its engine (``SUB100_PREFILL_*``, ``SUB100_DECODE_*``).

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


def create_engine(config: EngineConfig, common: Common, role: Role, environ: Mapping[str, str]) -> Engine:
    """Build the chosen engine; raises ConfigError naming what is missing."""
    if config.engine == "sim":
        return _simulated(config, environ, derive(common.secret(), "kv-transfer"))
    try:
        from .vllm.build import build_vllm
    except ImportError as error:
        raise ConfigError(f"engine vllm is not installed in this environment: {error}") from error
    return build_vllm(config, derive(common.secret(), "kv-transfer"), role)


def _simulated(config: EngineConfig, environ: Mapping[str, str], secret: bytes) -> Engine:
    """``SUB100_SIM_*`` sets what only the simulation has; the rest is the worker's own configuration."""
    from .sim.config import SimConfig
    from .sim.engine import SimEngine

    sim = load(SimConfig, "SUB100_SIM_", environ)
    return SimEngine(
        msgspec.structs.replace(
            sim,
            model=config.name,
            tokenizer=config.model if Path(config.model).is_dir() else "",
            timing=config.timing,
            block_size=config.block_size,
            max_model_len=config.max_model_len or context_length(config.model) or sim.max_model_len,
            max_num_seqs=config.max_num_seqs,
            max_chunk_tokens=config.max_chunk_tokens,
            kv_host=config.kv_host,
            lease_s=config.lease_s,
        ),
        secret=secret,
    )


def context_length(model: str) -> int:
    """``max_position_embeddings`` of a model directory; 0 if it does not say."""
    path = Path(model) / "config.json"
    if not path.is_file():
        return 0
    value = msgspec.json.decode(path.read_bytes()).get("max_position_embeddings", 0)
    return value if isinstance(value, int) else 0

"""Which engine a worker runs: the choice is configuration, the import follows it."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from sub100_shared.config import Common, ConfigError, load
from sub100_shared.secret import derive

from .api import Engine
from .revision import revision
from .settings import EngineConfig


def create_engine(config: EngineConfig, common: Common, environ: Mapping[str, str]) -> Engine:
    """Build the chosen engine; raises ConfigError naming what is missing."""
    if config.engine == "sim":
        return _simulated(config, environ, derive(common.secret(), "kv-transfer"))
    try:
        from .vllm.build import build_vllm
    except ImportError as error:
        raise ConfigError(f"engine vllm is not installed in this environment: {error}") from error
    return build_vllm(config, derive(common.secret(), "kv-transfer"))


def _simulated(config: EngineConfig, environ: Mapping[str, str], secret: bytes) -> Engine:
    """``SUB100_SIM_*`` sets what only the simulation has; the rest is the worker's own configuration."""
    from .sim.config import SimConfig
    from .sim.engine import SimEngine

    sim = load(SimConfig, "SUB100_SIM_", environ)
    return SimEngine(
        msgspec.structs.replace(
            sim,
            model=config.name,
            revision=sim.revision or revision(config.model),
            tokenizer=config.model if Path(config.model).is_dir() else "",
            timing=config.timing,
            block_size=config.block_size,
            dtype=config.dtype,
            max_model_len=config.max_model_len or context_length(config.model) or sim.max_model_len,
            max_num_seqs=config.max_num_seqs,
            max_chunk_tokens=config.max_chunk_tokens,
            kv_host=config.kv_host,
            kv_port=config.kv_port,
            lease_s=config.lease_s,
            speculative_tokens=config.speculative_tokens if config.speculation.is_on else 0,
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

"""The vLLM engine from a worker's configuration."""

from sub100_engine.settings import EngineConfig

from .config import VllmConfig
from .engine import VllmEngine


def build_vllm(config: EngineConfig, key: bytes) -> VllmEngine:
    """``key`` is the transfer key. Both roles run the same engine: each can hand over and pull."""
    return VllmEngine(
        VllmConfig(
            model=config.model,
            served_name=config.name,
            block_size=config.block_size,
            dtype=config.dtype,
            max_model_len=config.max_model_len,
            max_num_seqs=config.max_num_seqs,
            max_chunk_tokens=config.max_chunk_tokens,
            kv_cache_bytes=config.kv_cache_mib << 20,
            num_threads=config.num_threads,
            compile=config.compile,
            kv_host=config.kv_host,
            kv_port=config.kv_port,
            kv_transport=config.kv_transport,
            lease_s=config.lease_s,
            speculation=config.speculation,
        ),
        key,
    )

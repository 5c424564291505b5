"""Process-wide switches that the engine core inherits: a worker process belongs to its one engine."""

import logging
import os
from pathlib import Path

from vllm.platforms import current_platform

from .config import VllmConfig


def prepare(config: VllmConfig, runtime_dir: Path) -> None:
    """Set them before the core is spawned; values that only tune leave an operator's choice alone."""
    logging.getLogger("vllm").setLevel(logging.WARNING)
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")  # binding made shared cores 7x slower
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # one engine's idle threads must not starve another
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if current_platform.is_cpu():
        # small functions compile on their first call: log probabilities stalled every stream for 6 s
        os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    if config.is_local:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ["OMP_NUM_THREADS"] = str(config.num_threads)
    os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"  # a fork would copy our threads' locks
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"  # the runner that runner_patch knows
    os.environ["VLLM_RPC_BASE_PATH"] = str(runtime_dir)  # vLLM's own sockets are swept with ours

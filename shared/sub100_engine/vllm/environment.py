"""Process-wide switches that the engine core inherits: a worker process belongs to its one engine."""

import fcntl
import logging
import os
import shutil
import socket
import struct
import sysconfig
from pathlib import Path
from typing import Final

import vllm.envs
from vllm.platforms import current_platform

from .config import VllmConfig

_SIOCGIFADDR: Final = 0x8915
_TCP_SEGMENTS: Final = {"UCX_TCP_TX_SEG_SIZE": "256k", "UCX_TCP_RX_SEG_SIZE": "512k"}
"""UCX's own (8 and 64 KiB) move a quarter as much."""


def prepare(config: VllmConfig, runtime_dir: Path) -> None:
    """Set them before the core is spawned; values that only tune leave an operator's choice alone."""
    logging.getLogger("vllm").setLevel(logging.WARNING)
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")  # binding made shared cores 7x slower
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # one engine's idle threads must not starve another
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if current_platform.is_cpu():
        if not compiles(config):
            os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
        # vLLM 0.32 cannot load what it has compiled ahead of time for a CPU, and so would compile at every
        # start
        os.environ.setdefault("VLLM_USE_AOT_COMPILE", "0")
        # beside vLLM's own, not in the temporary directory, which may go with the run
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{vllm.envs.VLLM_CACHE_ROOT}/torchinductor"
    if config.is_local:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ["OMP_NUM_THREADS"] = str(config.num_threads)
    # n-gram look-up is numba's, which sets OpenMP's threads for all: one-token steps took 4 times as long
    os.environ["NUMBA_NUM_THREADS"] = str(config.num_threads)
    os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"  # a fork would copy our threads' locks
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"  # the runner that runner_patch knows
    os.environ["VLLM_RPC_BASE_PATH"] = str(runtime_dir)  # vLLM's own sockets are swept with ours
    if config.kv_transport == "nixl":
        _prepare_ucx(config.kv_host)


def compiles(config: VllmConfig) -> bool:
    """Whether the model is compiled. On a CPU that takes what builds a Python extension in C++."""
    if not current_platform.is_cpu():
        return config.compile != "off"
    if config.compile != "on":
        return False
    has_headers = Path(sysconfig.get_path("include"), "Python.h").is_file()
    return has_headers and shutil.which(os.environ.get("CXX", "g++")) is not None


def _prepare_ucx(host: str) -> None:
    """TCP on the interface that the hand-over listens on, unless an operator has chosen (RDMA, another
    interface): UCX's own choice would be every interface there is, and its listener asks for no secret."""
    os.environ.setdefault("UCX_WARN_UNUSED_ENV_VARS", "n")
    for name, value in _TCP_SEGMENTS.items():
        os.environ.setdefault(name, value)
    if "UCX_TLS" in os.environ:
        return
    os.environ["UCX_TLS"] = "tcp"
    if "UCX_NET_DEVICES" not in os.environ:
        os.environ["UCX_NET_DEVICES"] = interface_of(host)


def interface_of(host: str) -> str:
    """The network interface that has this IPv4 address; raises ValueError if none has."""
    address = socket.gethostbyname(host)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()))
            except OSError:
                continue  # without an address
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    raise ValueError(f"no network interface has the address {host}: set UCX_NET_DEVICES")

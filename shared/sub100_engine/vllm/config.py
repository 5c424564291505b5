"""What the vLLM adapter needs to be told; the deployment secret is passed beside it, never inside."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from sub100_engine.settings import Speculation

Positive = Annotated[int, msgspec.Meta(ge=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Transport = Literal["auto", "tcp", "shm", "nixl"]


class VllmConfig(msgspec.Struct, frozen=True, kw_only=True):
    """``model`` is a directory or a Hugging Face id. ``max_model_len`` 0: the model's own.

    ``max_chunk_tokens`` bounds the tokens of one engine step, decode tokens included. ``kv_host`` is the
    one address that the hand-over listens on, ``kv_port`` 0 picks a free port, ``kv_advertise`` is what
    peers dial if that differs. ``kv_transport`` is how KV bytes move: ``tcp``; ``shm``, shared memory on this
    host and no listener for others; ``auto``, whichever of the two reaches; ``nixl``, over UCX.
    ``runtime_dir`` holds sockets and keys, in a private directory per engine (default: the system's
    temporary directory). ``compile``: see EngineConfig. ``pull_timeout_s`` bounds a pull of KV from
    connect to last byte, ``orphan_s`` a drain's wait for KV that nobody comes for.
    """

    model: str
    served_name: str = ""
    block_size: Positive = 32
    max_model_len: Count = 0
    max_num_seqs: Positive = 32
    max_chunk_tokens: Positive = 512
    kv_cache_bytes: Positive = 1 << 30
    num_threads: Positive = 1
    compile: Literal["auto", "on", "off"] = "off"
    dtype: str = "auto"
    kv_host: str = "127.0.0.1"
    kv_port: Count = 0
    kv_advertise: str = ""
    kv_transport: Transport = "auto"
    lease_s: Seconds = 30.0
    pull_timeout_s: Seconds = 10.0
    orphan_s: Seconds = 5.0
    runtime_dir: str = ""
    stop_timeout_s: Seconds = 10.0
    speculation: Speculation = msgspec.field(default_factory=Speculation)

    @property
    def name(self) -> str:
        return self.served_name or Path(self.model).name

    @property
    def is_local(self) -> bool:
        return Path(self.model).is_dir()

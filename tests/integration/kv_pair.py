"""A prefill and a decode worker's sides of a hand-over, over real sockets and without engines."""

import os
import secrets
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.kv_proxy import Tampering

from sub100_engine.vllm.exporter import MAX_CONNECTIONS, Exporter
from sub100_engine.vllm.kv_memory import KvMemory
from sub100_engine.vllm.leases import Leases
from sub100_engine.vllm.nixl_agent import NixlAgent
from sub100_engine.vllm.nixl_reading import NixlReading
from sub100_engine.vllm.nixl_serving import NixlServing
from sub100_engine.vllm.peers import Peers, host_id
from sub100_engine.vllm.puller import KvPullError, Puller, connector_of
from sub100_proto.kv import KvHandle

KEY = b"k" * 32
NUM_BLOCKS = 16
ROW_WORDS = (12, 12, 8)
HELD = (5, 2, 11, 3)


def memory(seed: int) -> KvMemory:
    random = np.random.default_rng(seed)
    layers = [random.integers(0, 2**63, (NUM_BLOCKS, words), np.uint64) for words in ROW_WORDS]
    return KvMemory(layers, "test")


def nixl_agent() -> NixlAgent:
    os.environ |= {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo"}
    return NixlAgent(f"test-{secrets.token_hex(4)}")


class Producer:
    """A prefill worker's side, with the lease ``key`` on blocks HELD."""

    def __init__(
        self,
        directory: Path,
        way: str = "auto",
        lease_s: float = 30.0,
        proof_timeout_s: float = 5.0,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self.way = way
        self.memory = memory(1)
        self.nixl = NixlServing(nixl_agent(), self.memory) if way == "nixl" else None
        self.leases = Leases(lease_s, time.monotonic)
        self.leases.pin("key", "request", b"prompt", HELD)
        self.exporter = Exporter(self.memory, self.leases, KEY, self.nixl, proof_timeout_s, max_connections)
        self.port = self.exporter.start("127.0.0.1", 0, directory / "kv.sock")
        self.handle = KvHandle(
            connector=connector_of(way),
            key="key",
            num_tokens=100,
            layout=self.memory.layout,
            lease_s=lease_s,
            endpoint=f"127.0.0.1:{self.port}",
            host_id=host_id(),
            shm="" if way == "tcp" else str(directory),
        )

    def next_outcome(self, timeout_s: float = 5.0) -> str:
        """How the lease ended; the exporter hears of a pull's end just after the puller returns."""
        deadline_s = time.monotonic() + timeout_s
        while not (ended := self.leases.take_ended()):
            assert time.monotonic() < deadline_s, "the lease does not end"
            time.sleep(0.002)
        return ended[0].outcome

    def over_tcp(self) -> KvHandle:
        return msgspec.structs.replace(self.handle, shm="")


class Consumer:
    """A decode worker's side, on other memory."""

    def __init__(self, way: str, key: bytes = KEY) -> None:
        self.idled_s = 0.0
        self.peers = Peers(key, use_shared_memory=way != "tcp", clock=lambda: time.monotonic() + self.idled_s)
        self.memory = memory(2)
        self._reading = NixlReading(nixl_agent(), self.memory) if way == "nixl" else None

    def pull(self, handle: KvHandle, first: int = 0, timeout_s: float = 5.0) -> KvMemory:
        """Into blocks 0, 1, ..."""
        self.puller(timeout_s).pull(handle, b"prompt", first, range(len(HELD) - first))
        return self.memory

    def failure(self, handle: KvHandle, prompt: bytes = b"prompt", timeout_s: float = 5.0) -> KvPullError:
        with pytest.raises(KvPullError) as error:
            self.puller(timeout_s).pull(handle, prompt, 0, range(len(HELD)))
        return error.value

    def puller(self, timeout_s: float = 5.0) -> Puller:
        return Puller(self.memory, self.peers, timeout_s, self._reading)

    def close(self) -> None:
        self.peers.close()
        if self._reading is not None:
            self._reading.close()


def through(proxy: Tampering, producer: Producer) -> KvHandle:
    return msgspec.structs.replace(producer.over_tcp(), endpoint=proxy.endpoint)

"""Memory that a NIXL read may still write to is lent to nobody, however the read failed."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sub100_engine.vllm.kv_memory import KvMemory
from sub100_engine.vllm.nixl_agent import NixlAgent, NixlError
from sub100_engine.vllm.nixl_reading import NixlReading
from sub100_engine.vllm.wire import Readable

NUM_LAYERS = 2


class NixlBackendError(Exception):
    """One of the library's own, found by its name."""


class Library:
    """NIXL's Python API, whose transfers do as ``transfers`` says, and are let go of when ``is_over``."""

    nixlBind = SimpleNamespace(nixlBackendError=NixlBackendError)  # noqa: N815

    def __init__(self, *transfers: str) -> None:
        self.transfers = list(transfers)
        self.is_over = False
        self.held: list[int] = []
        self.targets: list[int] = []
        self.backends = ["UCX"]

    def nixl_agent_config(self, **_: Any) -> None:
        return None

    def nixl_agent(self, name: str, config: None) -> "Library":
        return self

    def register_memory(self, spans: Any, kind: str) -> object:
        return object()

    def add_remote_agent(self, metadata: bytes) -> str:
        return "peer"

    def remove_remote_agent(self, peer: str) -> None: ...

    def get_xfer_descs(self, spans: Any, kind: str) -> Any:
        return spans

    def initialize_xfer(self, kind: str, local: Any, remote: Any, peer: str) -> int:
        self.targets.append(int(local[0][0]))
        self.held.append(len(self.targets))
        return len(self.targets)

    def transfer(self, handle: int) -> str:
        told = self.transfers.pop(0)
        if told == "raise":
            raise NixlBackendError("no")
        return told

    def check_xfer_state(self, handle: int) -> str:
        return "DONE"

    def release_xfer_handle(self, handle: int) -> None:
        if not self.is_over:
            raise NixlBackendError("still active")
        self.held.remove(handle)


def memory() -> KvMemory:
    return KvMemory([np.zeros((4, 8), np.uint64) for _ in range(NUM_LAYERS)], "test")


def read(reading: NixlReading) -> Iterator[Any]:
    return reading.layers(Readable("peer", b"", (4096, 8192), (0, 1)), 2, lambda: 5.0)


@pytest.mark.parametrize("how", ["ERR", "raise"])
def test_memory_of_a_read_that_could_not_start_is_lent_again_when_it_is_let_go(how: str) -> None:
    library = Library(how, "PROC", "PROC", "PROC")
    reading = NixlReading(NixlAgent("own", library), memory())
    with pytest.raises(NixlError):
        list(read(reading))
    assert library.held == [1]
    assert len(list(read(reading))) == NUM_LAYERS
    failed, other = library.targets
    assert other != failed
    library.is_over = True
    assert len(list(read(reading))) == NUM_LAYERS
    assert library.held == []
    assert library.targets[2] in (failed, other)


def test_memory_of_a_read_whose_next_could_not_start_is_kept_until_both_are_let_go() -> None:
    library = Library("PROC", "ERR", "PROC", "PROC")
    reading = NixlReading(NixlAgent("own", library), memory(), window_bytes=8)
    with pytest.raises(NixlError):
        list(read(reading))
    assert library.held == [1, 2]
    list(read(reading))
    assert not set(library.targets[:2]) & set(library.targets[2:])

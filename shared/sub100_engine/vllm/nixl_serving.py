"""The exporter's part of a NIXL transfer: says where pinned blocks lie, and serves while somebody reads them.

Over TCP, UCX answers a read in software, so this side must make progress; it does so on one thread that
sleeps for as long as nothing is granted.
"""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .kv_memory import KvMemory
from .nixl_agent import NixlAgent, NixlError, paced, spans_of
from .wire import Readable


class NixlServing:
    """``open`` -> ``readable`` and ``serving`` -> ``close``."""

    def __init__(self, agent: NixlAgent, memory: KvMemory) -> None:
        self._agent = agent
        self._bases = memory.bases
        self._kind, self._device = memory.kind, memory.device
        self._registered: Any = agent.register(spans_of(memory.regions, memory.device), memory.kind)
        self._metadata = agent.metadata()
        self._wake = threading.Condition()
        self._num_granted = 0
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name="kv-nixl", daemon=True)
        self._thread.start()

    def readable(self, block_ids: Sequence[int]) -> Readable:
        return Readable(
            self._agent.name,
            self._metadata,
            self._bases,
            tuple(block_ids),
            self._kind,
            self._device,
        )

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Inside, peers' reads go on."""
        with self._wake:
            self._num_granted += 1
            self._wake.notify()
        try:
            yield
        finally:
            with self._wake:
                self._num_granted -= 1

    def close(self) -> None:
        """Idempotent. Nobody may read any more."""
        with self._wake:
            if self._is_closed:
                return
            self._is_closed = True
            self._wake.notify()
        self._thread.join(5)
        self._agent.deregister(self._registered)

    def _serve(self) -> None:
        while True:
            with self._wake:
                while not self._num_granted and not self._is_closed:
                    self._wake.wait()
                if self._is_closed:
                    return
            with (
                paced(),
                contextlib.suppress(NixlError),
            ):  # a reader that broke off: its control connection tells
                self._agent.progress()

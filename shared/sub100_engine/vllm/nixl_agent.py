"""The one adapter of the NIXL library: an agent that reads other agents' memory, and serves its own.

NIXL's own progress thread spins a whole core for as long as an engine lives, so it is off: whoever waits
for something calls ``progress`` (or polls a read) at a pace of ours, and only while something moves. All
calls are under one lock, since an agent is not thread-safe without its own.

What moves the bytes is UCX, told by ``UCX_TLS`` and ``UCX_NET_DEVICES`` (see ``environment``).
"""

import contextlib
import importlib
import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

State = Literal["running", "done", "failed"]
Spans = npt.NDArray[np.uint64]
"""One row a span of memory: address, bytes, device."""

_log = logging.getLogger(__name__)

_PACKAGES: Final = ("nixl", "nixl_cu13", "nixl_cu12")
_MAX_PEERS: Final = 256
_PAUSE_S: Final = 50e-6
_BUSY_S: Final = 10e-6
"""A look that takes longer has moved something, and there is likely more."""
_NOBODY: Final = object()
_STATES: Final[dict[str, State]] = {"PROC": "running", "DONE": "done"}


class NixlError(OSError):
    """The library refused or lost something; a peer that died shows up like this."""


class NixlMissing(RuntimeError):
    """No package of NIXL's is installed in this environment."""


def load_library() -> ModuleType:
    """NIXL's Python API, whichever package brings it; raises NixlMissing."""
    os.environ.setdefault("NIXL_LOG_LEVEL", "WARN")
    for package in _PACKAGES:
        with contextlib.suppress(ImportError):
            library = importlib.import_module(f"{package}._api")
            logging.getLogger("nixl").setLevel(logging.WARNING)
            return library
    raise NixlMissing(f"KV transport nixl needs one of the packages {', '.join(_PACKAGES)}")


class NixlAgent:
    """``register`` memory -> give ``metadata`` to a peer; ``connect`` to a peer's -> ``read``.

    ``library``: what ``load_library`` returns, or what does as it does.
    """

    def __init__(self, name: str, library: Any = None) -> None:
        self.name = name
        library = library or load_library()
        self._failures: tuple[type[Exception], ...] = _failures(library)
        with self._guarded():
            config = library.nixl_agent_config(enable_prog_thread=False, backends=["UCX"])
            self._agent: Any = library.nixl_agent(name, config)
        if "UCX" not in self._agent.backends:
            raise NixlMissing("this NIXL was built without UCX")
        self._lock = threading.Lock()
        self._peers: OrderedDict[str, None] = OrderedDict()

    def register(self, spans: Spans, kind: str = "DRAM") -> Any:
        """Let this memory be read, or read into. Returns what ``deregister`` takes."""
        with self._guarded(), self._lock:
            return self._agent.register_memory(spans, kind)

    def deregister(self, registered: Any) -> None:
        with self._guarded(), self._lock:
            self._agent.deregister_memory(registered)

    def metadata(self) -> bytes:
        """What a peer needs to read what is registered now."""
        with self._guarded(), self._lock:
            data: bytes = self._agent.get_agent_metadata()
            return data

    def connect(self, peer: str, metadata: bytes) -> None:
        """Make a peer, by its name, one that can be read from; ourselves and known ones cost nothing. The
        peer that was used longest ago may be dropped."""
        if peer == self.name:
            return
        with self._guarded(), self._lock:
            if peer not in self._peers:
                added = self._agent.add_remote_agent(metadata)
                if added != peer and added != peer.encode():
                    raise NixlError(f"the agent of {peer} has another name")
                self._peers[peer] = None
                while len(self._peers) > _MAX_PEERS:
                    oldest, _ = self._peers.popitem(last=False)
                    self._agent.remove_remote_agent(oldest)
            self._peers.move_to_end(peer)

    def disconnect(self, peer: str) -> None:
        """Cut every connection to a peer: what is still read from it fails."""
        with self._lock:
            if self._peers.pop(peer, _NOBODY) is not _NOBODY:
                with contextlib.suppress(*self._failures):
                    self._agent.remove_remote_agent(peer)

    def read(self, peer: str, local: tuple[str, Spans], remote: tuple[str, Spans]) -> "Reading":
        """Start to fill the local spans from the peer's, pair by pair; each side says what kind they are.

        One that cannot start has failed, but a part of it may be on its way: it must be ended as well.
        """
        with self._guarded(), self._lock:
            descriptors = (self._agent.get_xfer_descs(spans, kind) for kind, spans in (local, remote))
            handle = self._agent.initialize_xfer("READ", *descriptors, peer)
            try:
                has_started = self._agent.transfer(handle) != "ERR"
            except self._failures as error:
                _log.info("nixl_read_failed: %s", error)
                has_started = False
            return Reading(self, handle, has_started)

    def progress(self) -> None:
        """Serve peers that read from us; with RDMA the hardware does, and this only connects them."""
        with self._guarded(), self._lock:
            self._agent.get_new_notifs()

    def state(self, handle: Any) -> State:
        """Also moves things on. A failure is a state here, not an exception."""
        try:
            with self._lock:
                return _STATES.get(self._agent.check_xfer_state(handle), "failed")
        except self._failures:
            return "failed"

    def let_go(self, handle: Any) -> bool:
        """Whether the library has let go of it: no byte of it is written any more."""
        try:
            with self._lock:
                self._agent.release_xfer_handle(handle)
        except self._failures:
            return False
        return True

    @contextlib.contextmanager
    def _guarded(self) -> Any:
        try:
            yield
        except self._failures as error:
            raise NixlError(f"{type(error).__name__}: {error}") from error


class Reading:
    """A read on its way. It owns its spans until ``end`` says that they are let go."""

    def __init__(self, agent: NixlAgent, handle: Any, has_started: bool) -> None:
        self._agent = agent
        self._handle = handle
        self._has_started = has_started

    def poll(self) -> State:
        return self._agent.state(self._handle) if self._has_started else "failed"

    def end(self) -> bool:
        """Cancel it if it runs; False: the library still may write, ask again later."""
        return self._agent.let_go(self._handle)


@contextlib.contextmanager
def paced() -> Iterator[None]:
    """One look at the sockets inside, then a pause if it found nothing to do."""
    started_s = time.perf_counter()
    yield
    if time.perf_counter() - started_s < _BUSY_S:
        time.sleep(_PAUSE_S)


def spans_of(rows: Sequence[tuple[int, int]], device: int = 0) -> Spans:
    """Addresses and lengths in bytes as the library wants them."""
    spans = np.empty((len(rows), 3), np.uint64)
    spans[:, :2] = np.asarray(rows, np.uint64).reshape(-1, 2)
    spans[:, 2] = device
    return spans


def _failures(library: Any) -> tuple[type[Exception], ...]:
    """The library's own exceptions have no common base of theirs."""
    bindings = library.nixlBind
    own = (
        value for name, value in vars(bindings).items() if name.endswith("Error") and isinstance(value, type)
    )
    return (*own, RuntimeError, ValueError)

"""The worker half of the hand-over: pins and serves our blocks, pulls other workers' into them.

vLLM calls in on its step thread; pulls run on a few threads of ours, so that steps go on meanwhile.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from .config import Transport
from .exporter import Exporter
from .kv_memory import KvMemory
from .leases import Leases
from .nixl_agent import NixlAgent
from .nixl_reading import NixlReading
from .nixl_serving import NixlServing
from .orders import Orders, Place, PullOrder, TransferReport
from .peers import SOCKET_NAME, Cancellation, Peers, host_id
from .pull_threads import PullThreads
from .puller import KvPullError, Puller, connector_of

_log = logging.getLogger(__name__)


class TransferSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The adapter's word to the connector; ``key_file`` holds the transfer key (never the key itself)."""

    host: str
    port: int
    advertise: str
    key_file: str
    runtime_dir: str
    transport: Transport
    lease_s: float
    pull_timeout_s: float
    description: str


@dataclass
class Results:
    """What ended since the last step: requests by the engine's id."""

    sent: set[str] = field(default_factory=set)
    received: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)


class HandOver:
    """``open`` once the KV cache exists -> orders and ``take_results`` each step -> ``close``.

    ``on_news`` is called from any thread when ``take_results`` has something to give.
    """

    def __init__(self, settings: TransferSettings, on_news: Callable[[], None]) -> None:
        self._settings = settings
        self._on_news = on_news
        self._key = Path(settings.key_file).read_bytes()
        self._peers = Peers(self._key, settings.transport != "tcp")
        self._leases = Leases(settings.lease_s, time.monotonic, on_news)
        self._threads = PullThreads()
        self._lock = threading.Lock()
        self._results = Results()
        self._reports: list[TransferReport] = []
        self._pinned: set[str] = set()
        self._finished: set[str] = set()
        self._ended: set[str] = set()
        self._exporter: Exporter | None = None
        self._puller: Puller | None = None
        self._reading: NixlReading | None = None
        self._pulls: dict[str, tuple[Future[object], Cancellation]] = {}
        self.place: Place | None = None

    def open(self, memory: KvMemory) -> None:
        """Start serving; raises OSError if the address is taken, NixlMissing without the library."""
        settings = self._settings
        serving = None
        if settings.transport == "nixl":
            agent = NixlAgent(f"sub100-{secrets.token_hex(8)}")
            serving = NixlServing(agent, memory)
            self._reading = NixlReading(agent, memory)
        is_local_only, is_near = settings.transport == "shm", settings.transport != "tcp"
        socket_path = Path(settings.runtime_dir) / SOCKET_NAME if is_near else None
        self._exporter = Exporter(memory, self._leases, self._key, serving)
        port = self._exporter.start("" if is_local_only else settings.host, settings.port, socket_path)
        self._puller = Puller(memory, self._peers, settings.pull_timeout_s, self._reading)
        self.place = Place(
            connector=connector_of(settings.transport),
            endpoint="" if is_local_only else f"{settings.advertise or settings.host}:{port}",
            host_id=host_id(),
            shm=settings.runtime_dir if socket_path else "",
            layout=memory.layout,
            block_bytes=memory.block_bytes,
        )

    def discard(self, orders: Orders) -> None:
        """Forget leases of requests that ended without a hand-over; the engine has their blocks again."""
        for key, owner in orders.discards:
            self._leases.end(key, "discarded")
            for owners in (self._ended, self._finished, self._pinned):
                owners.discard(owner)

    def start_pulls(self, orders: Orders) -> None:
        now_s = time.monotonic()
        for order in orders.pulls:
            cancellation = Cancellation()
            pull = self._threads.submit(order.handle, partial(self._pull, order, now_s, cancellation))
            self._pulls[order.owner] = pull, cancellation
        for owner in orders.cancels:
            self._cancel(owner)
        for handle in orders.unneeded:
            self._threads.submit(handle, partial(self._peers.release, handle, is_unneeded=True))

    def pin(self, orders: Orders) -> None:
        """The step that completes these prompts has run: their KV may be pulled."""
        for order in orders.pins:
            self._pinned.add(order.owner)
            self._leases.pin(order.key, order.owner, order.prompt, order.block_ids)

    def take_results(self, finished: set[str]) -> Results:
        """``finished``: requests that the engine ended since the last step. vLLM wants to hear of a sent
        request only once it has ended, and its core dies of one that it has forgotten."""
        ended = self._leases.take_ended()
        for owner in [owner for owner, (pull, _) in self._pulls.items() if pull.done()]:
            del self._pulls[owner]
        with self._lock:
            results, self._results = self._results, Results()
            self._reports.extend(
                TransferReport(key=lease.key, outcome=lease.outcome, num_blocks=lease.num_blocks)
                for lease in ended
            )
        self._finished.update(self._pinned & finished)
        self._ended.update(lease.owner for lease in ended)
        results.sent = self._ended & self._finished
        for owners in (self._ended, self._finished, self._pinned):
            owners -= results.sent
        return results

    def take_reports(self) -> list[Mapping[str, Any]]:
        with self._lock:
            reports, self._reports = self._reports, []
        return [msgspec.to_builtins(report) for report in reports]

    def close(self) -> None:
        if self._exporter is not None:
            self._exporter.stop()
        for _, cancellation in self._pulls.values():
            cancellation.set()
        self._threads.close()
        self._peers.close()
        if self._reading is not None:
            self._reading.close()

    def _cancel(self, owner: str) -> None:
        """End a pull now: the engine gets the blocks back with its end."""
        pull, cancellation = self._pulls.pop(owner, (None, None))
        if pull is None or cancellation is None:
            return
        if pull.cancel():  # it waited for a thread
            with self._lock:
                self._results.received.add(owner)
        else:
            cancellation.set()

    def _pull(self, order: PullOrder, ordered_s: float, cancellation: Cancellation) -> None:
        """Never raises: a load that is not told as received would hold its request for ever."""
        outcome, reason, num_bytes = "pulled", "", 0
        try:
            if self._puller is None:
                raise KvPullError("kv_load_failed", "no KV cache yet")
            num_bytes = self._puller.pull(
                order.handle, order.prompt, order.first_block, order.block_ids, cancellation, ordered_s
            )
        except KvPullError as error:
            outcome, reason = error.code, str(error)
        except Exception as error:
            _log.exception("kv_pull_failed")
            outcome, reason = "kv_load_failed", type(error).__name__
        report = TransferReport(
            attempt=order.attempt,
            outcome=outcome,
            reason=reason,
            duration_ms=(time.monotonic() - ordered_s) * 1e3,
            num_tokens=order.num_tokens if outcome == "pulled" else 0,
            num_bytes=num_bytes,
        )
        with self._lock:
            self._reports.append(report)
            self._results.received.add(order.owner)
            if outcome != "pulled":
                self._results.failed.add(order.owner)
        self._on_news()

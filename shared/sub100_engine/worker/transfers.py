"""What a worker's jobs tell of its hand-overs: the decode side from how its pulls end, the prefill side from
ingress, which gives back what a decode worker could not load, and from its engine's count of what was pulled.
"""

from collections.abc import Callable

from sub100_proto.fleet import Load
from sub100_proto.jobs import Job, PrefillJob, ReleaseKv
from sub100_shared import catalog
from sub100_shared.clock import Clock
from sub100_shared.metrics import Metrics

from ..api import Output
from .transfer_health import TransferHealth


class Transfers:
    """``on_fault`` is called with each new reason why the worker is out, and with an empty one when it is
    well again."""

    def __init__(
        self, health: TransferHealth, clock: Clock, metrics: Metrics, on_fault: Callable[[str], None]
    ) -> None:
        self._health = health
        self._clock = clock
        self._on_fault = on_fault
        self._peers: dict[str, str] = {}
        self._num_pulled_blocks = 0
        metrics.observe(catalog.KV_FAULT, lambda: float(bool(health.fault)))

    @property
    def reason(self) -> str:
        """Why the worker is out, trials or not; empty while it is well."""
        return self._health.fault

    def fault(self) -> str:
        """Why nothing is to be handed over to or from this worker at this moment; empty if it may be, be it
        as a trial."""
        return "" if self._health.is_open(self._now_s()) else self._health.fault

    def began(self, job: Job) -> None:
        if isinstance(job, PrefillJob):
            self._health.began(self._now_s())
        elif job.kv is not None:
            self._health.began(self._now_s())
            self._peers[job.attempt] = job.kv.endpoint or job.kv.shm

    def on_output(self, output: Output) -> None:
        """A pull ends with its attempt's first output or error. KV that is gone says nothing of the way to
        it, nor does a prompt that was found here."""
        peer = self._peers.pop(output.attempt, None)
        if peer is None:
            return
        if output.error == "kv_load_failed":
            self._failed(peer, output.transfer_ms)
        elif output.transferred_tokens:
            self._succeeded()

    def forget(self, attempt: str) -> None:
        """It was aborted: nobody knows what would have become of it."""
        self._peers.pop(attempt, None)

    def on_release(self, release: ReleaseKv) -> None:
        if release.failed_at:
            self._failed(release.failed_at, 0.0)

    def on_load(self, load: Load) -> None:
        if load.num_pulled_blocks > self._num_pulled_blocks:
            self._num_pulled_blocks = load.num_pulled_blocks
            self._succeeded()

    def _succeeded(self) -> None:
        before = self._health.fault
        self._health.succeeded(self._now_s())
        if before:
            self._on_fault("")

    def _failed(self, peer: str, tried_ms: float) -> None:
        before, now_s = self._health.fault, self._now_s()
        self._health.failed(peer, now_s - tried_ms / 1e3, now_s)
        if self._health.fault != before:
            self._on_fault(self._health.fault)

    def _now_s(self) -> float:
        return self._clock() / 1e3

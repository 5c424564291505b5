"""A worker's metrics: its engine's load when somebody looks, its jobs once each. Nothing per token."""

from collections.abc import Callable, Mapping
from typing import Final

from sub100_proto import subjects
from sub100_proto.fleet import Load
from sub100_proto.jobs import DecodeJob, Job
from sub100_shared import catalog
from sub100_shared.metrics import Counter, Metrics

from ..api import Output

CANCELLED: Final = "cancelled"


class JobMetrics:
    """``load`` reads the engine, ``num_jobs`` the jobs that the worker has."""

    def __init__(
        self,
        metrics: Metrics,
        role: subjects.Role,
        load: Callable[[], Load],
        num_jobs: Callable[[], int],
    ) -> None:
        self._phase = metrics.histogram(catalog.ENGINE_PHASE)
        self._ended = metrics.counter(catalog.JOBS_ENDED)
        self._refused = metrics.counter(catalog.JOBS_REFUSED)
        self._pulls = _Pulls(metrics) if role == "decode" else None
        metrics.observe(catalog.JOBS_OPEN, num_jobs)
        metrics.observe(catalog.ENGINE_REQUESTS, lambda: _requests(load()))
        metrics.observe(catalog.ENGINE_WAITING_TOKENS, lambda: load().num_waiting_tokens)
        metrics.observe(catalog.ENGINE_KV_USAGE, lambda: load().kv_usage)
        metrics.observe(catalog.ENGINE_STEPS, lambda: load().step)
        metrics.observe(catalog.ENGINE_OUTPUT_TOKENS, lambda: load().num_output_tokens)
        metrics.observe(catalog.ENGINE_PROMPT_TOKENS, lambda: _prompt_tokens(load()))
        metrics.observe(catalog.KV_PINNED, lambda: load().num_pinned_blocks)
        metrics.observe(catalog.KV_STRANDED, lambda: _stranded_blocks(load()))
        metrics.observe(catalog.SPECULATION_DRAFTS, lambda: load().num_drafts)
        metrics.observe(catalog.SPECULATION_TOKENS, lambda: _draft_tokens(load()))

    def refused(self, code: str) -> None:
        """The job was answered Busy."""
        self._refused.add(1, code)

    def began(self, job: Job) -> None:
        if self._pulls is not None and isinstance(job, DecodeJob) and job.kv is not None:
            self._pulls.began(job.attempt, job.kv.num_bytes)

    def first_output(self, output: Output) -> None:
        """The output that carries the engine's durations."""
        self._phase.record(output.queue_ms / 1e3, "queue")
        self._phase.record(output.compute_ms / 1e3, "compute")
        if output.transferred_tokens:
            self._phase.record(output.transfer_ms / 1e3, "transfer")
            if self._pulls is not None:
                self._pulls.done(output)

    def ended(self, attempt: str, code: str = "") -> None:
        """Once a job; ``code`` is why it failed, or CANCELLED."""
        self._ended.add(1, code)
        if self._pulls is not None:
            self._pulls.forget(attempt)


class _Pulls:
    """KV that decode pulls: a handle says how much it is before, an output that it arrived."""

    def __init__(self, metrics: Metrics) -> None:
        self._tokens: Counter = metrics.counter(catalog.KV_TRANSFER_TOKENS)
        self._bytes: Counter = metrics.counter(catalog.KV_TRANSFER_BYTES)
        self._under_way: dict[str, int] = {}

    def began(self, attempt: str, num_bytes: int) -> None:
        self._under_way[attempt] = num_bytes

    def done(self, output: Output) -> None:
        self._tokens.add(output.transferred_tokens)
        self._bytes.add(self._under_way.pop(output.attempt, 0))

    def forget(self, attempt: str) -> None:
        self._under_way.pop(attempt, None)


def _requests(load: Load) -> Mapping[tuple[str, ...], float]:
    return {("running",): load.num_running, ("waiting",): load.num_waiting}


def _prompt_tokens(load: Load) -> Mapping[tuple[str, ...], float]:
    num_cached = load.num_cached_tokens
    return {("cached",): num_cached, ("not_cached",): load.num_prompt_tokens - num_cached}


def _stranded_blocks(load: Load) -> Mapping[tuple[str, ...], float]:
    return {("released",): load.num_released_blocks, ("expired",): load.num_expired_blocks}


def _draft_tokens(load: Load) -> Mapping[tuple[str, ...], float]:
    num_accepted = load.num_accepted_tokens
    return {("accepted",): num_accepted, ("rejected",): load.num_drafted_tokens - num_accepted}

"""vLLM's statistics of each step, kept as the worker needs them: load, counters, transfer reports."""

from collections.abc import Callable
from typing import Any

import msgspec
from vllm.v1.metrics.loggers import StatLoggerBase
from vllm.v1.metrics.stats import IterationStats, SchedulerStats

from .connector import REPORTS
from .orders import TransferReport


class PromptTokens(msgspec.Struct):
    """Prompt tokens since the start by where their KV came from (vLLM's own count,
    ``vllm:prompt_tokens_by_source``). ``transferred`` ones were not computed here."""

    computed: int = 0
    cached: int = 0
    transferred: int = 0


class Speculated(msgspec.Struct):
    """See ``sub100_proto.fleet.Load``."""

    drafts: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0


class EngineStats:
    """``on_report`` hears of every finished transfer, on the event loop."""

    def __init__(self, on_report: Callable[[TransferReport], None]) -> None:
        self._on_report = on_report
        self.num_waiting = 0
        self.kv_usage = 0.0
        self.step = 0
        self.prompt_tokens = PromptTokens()
        self.num_output_tokens = 0
        self.speculated = Speculated()

    def logger(self, vllm_config: Any, engine_index: int = 0) -> StatLoggerBase:
        """The factory that vLLM asks for."""
        return _Recorder(self)

    def record(self, scheduler: SchedulerStats | None, iteration: IterationStats | None) -> None:
        if scheduler is not None:
            self.step += 1
            self.num_waiting = scheduler.num_waiting_reqs + scheduler.num_skipped_waiting_reqs
            self.kv_usage = scheduler.kv_cache_usage
            if (drafts := scheduler.spec_decoding_stats) is not None:
                self.speculated.drafts += drafts.num_drafts
                self.speculated.drafted_tokens += drafts.num_draft_tokens
                self.speculated.accepted_tokens += drafts.num_accepted_tokens
            for report in (scheduler.kv_connector_stats or {}).get(REPORTS, ()):
                self._on_report(msgspec.convert(report, TransferReport))
        if iteration is not None:
            self.num_output_tokens += iteration.num_generation_tokens
            by_source = iteration.prompt_token_stats
            self.prompt_tokens.computed += by_source.computed
            self.prompt_tokens.cached += by_source.local_cache_hit
            self.prompt_tokens.transferred += by_source.external_kv_transfer


class _Recorder(StatLoggerBase):  # type: ignore[misc]
    def __init__(self, stats: EngineStats) -> None:
        self._stats = stats

    def record(
        self,
        scheduler_stats: SchedulerStats | None,
        iteration_stats: IterationStats | None,
        mm_cache_stats: Any = None,
        engine_idx: int = 0,
    ) -> None:
        self._stats.record(scheduler_stats, iteration_stats)

    def log_engine_initialized(self) -> None:
        """Nothing to say."""

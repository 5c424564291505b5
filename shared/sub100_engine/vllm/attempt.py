"""One attempt on vLLM: its request, the outputs it is told, how it ends."""

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from vllm.exceptions import VLLMValidationError
from vllm.v1.engine.exceptions import EngineDeadError

from sub100_engine.api import Output, Sink, Work
from sub100_proto.kv import KvHandle

from . import speculative
from .logprobs import packed, packed_prompt
from .orders import TransferReport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from vllm.outputs import RequestOutput

_REPORT_TIMEOUT_S = 1.0


class Attempt:
    """``run`` tells the sink everything, in order, and ends with one last output.

    ``export_key`` is the key under which a prefill's KV will be handed over, empty otherwise.
    """

    def __init__(self, work: Work, sink: Sink, export_key: str, loop: asyncio.AbstractEventLoop) -> None:
        self.work = work
        self.export_key = export_key
        self.task: asyncio.Task[None] | None = None
        self.has_told = False
        self.is_over = False
        self._sink = sink
        self._report: asyncio.Future[TransferReport] | None = loop.create_future() if work.kv else None

    def report(self, report: TransferReport) -> None:
        """The connector's word on this attempt's pull."""
        if self._report is not None and not self._report.done():
            self._report.set_result(report)

    def silence(self) -> None:
        """Nothing more is told, whatever still comes."""
        self.is_over = True

    def tell(self, **fields: Any) -> None:
        if self.is_over:
            return
        output = Output(attempt=self.work.attempt, **fields)
        self.has_told = True
        self.is_over = output.is_last or output.kv is not None
        self._sink(output)

    async def run(self, stream: "AsyncIterator[RequestOutput]") -> KvHandle | None:
        """Consume vLLM's outputs; returns the handle that was told, if one was."""
        try:
            async for output in stream:
                completion = output.outputs[0]
                reason = completion.finish_reason or ""
                if reason not in ("", "stop", "length"):
                    await self._tell_failure(reason)
                    return None
                ids = list(completion.token_ids)
                if reason == "stop" and ids:
                    del ids[-1]  # the stop token is no part of the answer
                handle = _handle(output.kv_transfer_params) if reason == "length" else None
                if not ids and not reason:
                    continue
                fields = {} if self.has_told else await self._first(output)
                if completion.logprobs is not None:
                    num_top = self.work.sampling.logprobs or 0
                    fields["logprobs"] = packed(completion.logprobs, num_top, len(ids))
                if reason:
                    fields |= speculative.counts(completion)
                self.tell(token_ids=ids, finish_reason="" if handle else reason, kv=handle, **fields)
                if handle or reason:
                    return handle
        except EngineDeadError:
            self.tell(error="engine_error", reason="the engine core is dead")
        except VLLMValidationError as error:
            code = "invalid_value" if self.work.sampling.structured is None else "invalid_grammar"
            self.tell(error=code, reason=_public(error))
        except Exception as error:
            # vLLM's text may quote the request, so only the kind of error is told
            self.tell(error="engine_error", reason=type(error).__name__)
        else:
            self.tell(error="engine_error", reason="the engine ended the request without a reason")
        return None

    async def _tell_failure(self, reason: str) -> None:
        if reason == "error" and self._report is not None:
            report = await self._wait_for_report()
            if report is not None and report.outcome != "pulled":
                self.tell(error=report.outcome, reason=report.reason, transfer_ms=report.duration_ms)
                return
        is_begun = bool(self.work.output) or self.work.kv is not None  # with a grammar that was compiled then
        if reason == "error" and self.work.sampling.structured and not is_begun and not self.has_told:
            self.tell(error="invalid_grammar", reason="the grammar cannot be compiled")
            return
        self.tell(error="engine_error", reason=f"the engine ended the request: {reason}")

    async def _wait_for_report(self) -> TransferReport | None:
        """vLLM sends reports with a step's statistics, which may come just after its outputs."""
        if self._report is None:
            return None
        done, _ = await asyncio.wait([self._report], timeout=_REPORT_TIMEOUT_S)
        return self._report.result() if done else None

    async def _first(self, output: "RequestOutput") -> dict[str, Any]:
        """Durations and counts of the first output. A prompt found whole on this worker has no report."""
        report = self._report.result() if self._report is not None and self._report.done() else None
        transfer_ms = report.duration_ms if report else 0.0
        transferred = report.num_tokens if report else 0
        fields: dict[str, Any] = {
            "cached_tokens": max(0, (output.num_cached_tokens or 0) - transferred),
            "transferred_tokens": transferred,
            "transfer_ms": transfer_ms,
        }
        if output.prompt_logprobs:
            num_top = self.work.sampling.prompt_logprobs or 0
            fields["prompt_logprobs"] = packed_prompt(output.prompt_logprobs, num_top)
        metrics = output.metrics
        if metrics is not None and metrics.scheduled_ts:
            queued_ms = (metrics.scheduled_ts - metrics.queued_ts) * 1e3
            fields["queue_ms"] = max(0.0, queued_ms - transfer_ms)
            fields["compute_ms"] = (metrics.first_token_ts - metrics.scheduled_ts) * 1e3
        return fields


def _public(error: VLLMValidationError) -> str:
    """What is wrong with a grammar, without what vLLM quotes of the request after it."""
    return str(error).partition(": ")[0][:200]


def _handle(params: dict[str, Any] | None) -> KvHandle | None:
    return msgspec.convert(params, KvHandle) if params else None

"""The Engine protocol on vLLM: lifecycle, submission, abort, load. See ``sub100_engine.api``."""

import asyncio
import contextlib
import logging
import secrets
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
from huggingface_hub import try_to_load_from_cache
from vllm.inputs.engine import tokens_input

from sub100_engine.api import EngineInfo, EngineStartError, KvListener, Sink, Work
from sub100_engine.revision import revision
from sub100_proto.fleet import Load
from sub100_proto.kv import KvHandle

from .attempt import Attempt
from .config import VllmConfig
from .core import EngineCore
from .kv_events import KvEvents
from .orders import RequestParams, TransferReport
from .peers import Peers
from .requests import ends_after_one_token, fault, sampling_params
from .runtime_dir import RuntimeDir
from .stats import EngineStats, PromptTokens
from .warm_up import warm_up

_log = logging.getLogger(__name__)


class VllmEngine:
    """``key`` is derived from the deployment secret: who knows it may pull KV from this engine."""

    def __init__(self, config: VllmConfig, key: bytes) -> None:
        self._config = config
        self._key = key
        self._core = EngineCore(config, self._fail)
        self._stats = EngineStats(self._hear_report)
        self._peers = Peers(key, config.kv_transport != "tcp")
        self._runtime: RuntimeDir | None = None
        self._events: KvEvents | None = None
        self._info: EngineInfo | None = None
        self._vocab_size = 0
        self._attempts: dict[str, Attempt] = {}
        self._leased: dict[str, int] = {}
        self._ended_blocks: Counter[str] = Counter()
        self._own: KvHandle | None = None
        self._releases: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._on_failure: Callable[[str], None] | None = None
        self._failure = ""
        self._is_stopped = False

    @property
    def prompt_tokens(self) -> PromptTokens:
        """vLLM's own count of prompt tokens by source: the proof that handed-over KV is not recomputed."""
        return self._stats.prompt_tokens

    @property
    def core_pid(self) -> int:
        return self._core.pid

    # -- lifecycle

    async def start(self, on_kv: KvListener) -> EngineInfo:
        try:
            return await self._start(on_kv)
        except EngineStartError:
            await self.stop()
            raise
        except Exception as error:
            _log.exception("engine_start_failed")
            await self.stop()
            raise EngineStartError(f"vLLM cannot start {self._config.model}: {error}") from error
        except asyncio.CancelledError:
            await self.stop()
            raise

    async def _start(self, on_kv: KvListener) -> EngineInfo:
        config = self._config
        self._runtime = RuntimeDir.create(config.runtime_dir)
        self._events = KvEvents(self._runtime.path, config.block_size, on_kv)
        self._events.open()
        await self._core.start(self._runtime, self._key, self._events.endpoint, self._stats)
        vllm = self._core.llm.vllm_config
        self._vocab_size = vllm.model_config.get_vocab_size()
        self._info = EngineInfo(
            model=config.name,
            layout="",
            block_size=vllm.cache_config.block_size,
            num_blocks=vllm.cache_config.num_gpu_blocks or 0,
            max_model_len=vllm.model_config.max_model_len,
            max_num_seqs=vllm.scheduler_config.max_num_seqs,
            max_chunk_tokens=vllm.scheduler_config.max_num_batched_tokens,
            dtype=str(vllm.model_config.dtype).removeprefix("torch."),
            speculation=config.speculation.name,
            revision=revision(_directory_of(config.model)),
            tensor_parallel=vllm.parallel_config.tensor_parallel_size,
            is_compiled=not vllm.model_config.enforce_eager,
        )
        self._own = await warm_up(self, self._info, self._vocab_size, self._events.heard)
        self._info = msgspec.structs.replace(
            self._info, layout=self._own.layout, connector=self._own.connector
        )
        return self._info

    async def drain(self, timeout_s: float) -> bool:
        """Wait until nothing runs and no handed-over KV waits for its puller.

        A hand-over begins milliseconds after its handle leaves. KV that nobody has come for in ``orphan_s``,
        with nothing else to wait for, has no puller any more: that is told instead of waited out.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while self._attempts or self._leased:
                    self._changed.clear()
                    patience_s = None if self._attempts else self._config.orphan_s
                    async with asyncio.timeout(patience_s):
                        await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        self._is_stopped = True
        for attempt in list(self._attempts):
            self.abort(attempt)
        if self._own is not None and not self._failure:
            for key in self._leased:  # the core goes on as long as it holds blocks for somebody
                self.release(msgspec.structs.replace(self._own, key=key))
        if self._releases:
            await asyncio.wait(self._releases, timeout=2)
        try:
            await self._core.stop(self._config.stop_timeout_s)
        finally:
            if self._events is not None:
                await self._events.close()
            self._peers.close()
            if self._runtime is not None:
                self._runtime.remove()
        self._leased.clear()
        self._changed.set()

    def set_failure_listener(self, on_failure: Callable[[str], None]) -> None:
        self._on_failure = on_failure

    # -- work

    def prefill(self, work: Work, sink: Sink) -> None:
        key = "" if ends_after_one_token(work, self._max_model_len) else secrets.token_hex(16)
        self._submit(Attempt(work, sink, key, asyncio.get_running_loop()), max_tokens=1)

    def decode(self, work: Work, sink: Sink) -> None:
        attempt = Attempt(work, sink, "", asyncio.get_running_loop())
        self._submit(attempt, max_tokens=work.sampling.max_tokens)

    def abort(self, attempt: str) -> None:
        known = self._attempts.pop(attempt, None)
        if known is None or known.task is None:
            return
        known.silence()
        known.task.cancel()
        if known.export_key and self._own is not None:
            # the prompt may be done already, and its handle on the way to nobody
            self._send_release(msgspec.structs.replace(self._own, key=known.export_key))
        self._changed.set()

    def release(self, kv: KvHandle) -> None:
        """Own handles and, after an answer that was over before it began, other workers'. Who remembers a
        handle may do so long after it was pulled: then there is nothing to do."""
        own = self._own
        is_own = own is not None and (kv.endpoint, kv.shm) == (own.endpoint, own.shm)
        if not is_own or kv.key in self._leased:
            self._send_release(kv)

    def _send_release(self, kv: KvHandle) -> None:
        task = asyncio.get_running_loop().create_task(self._release(kv), name="kv-release")
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    def load(self) -> Load:
        """How many there are is our own word, and what the core has not put aside runs: the core's word is of
        its last step, and one that hangs never corrects it."""
        stats, attempts = self._stats, self._attempts.values()
        prompt, speculated = stats.prompt_tokens, stats.speculated
        num_waiting = min(stats.num_waiting, len(attempts))
        to_compute = [a.work for a in attempts if not a.has_told and a.work.kv is None]
        return Load(
            num_running=len(attempts) - num_waiting,
            num_waiting=num_waiting,
            num_waiting_tokens=sum(len(work.prompt) + len(work.output) for work in to_compute),
            kv_usage=stats.kv_usage,
            step=stats.step,
            num_output_tokens=stats.num_output_tokens,
            num_drafts=speculated.drafts,
            num_drafted_tokens=speculated.drafted_tokens,
            num_accepted_tokens=speculated.accepted_tokens,
            num_prompt_tokens=prompt.computed + prompt.cached + prompt.transferred,
            num_cached_tokens=prompt.cached,
            num_pinned_blocks=sum(self._leased.values()),
            num_released_blocks=self._ended_blocks["released"],
            num_expired_blocks=self._ended_blocks["expired"],
            num_pulled_blocks=self._ended_blocks["pulled"],
        )

    # -- inside

    @property
    def _max_model_len(self) -> int:
        return self._info.max_model_len if self._info else 0

    def _num_blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self._info.block_size) if self._info else 0

    def _submit(self, attempt: Attempt, *, max_tokens: int) -> None:
        loop = asyncio.get_running_loop()
        name = attempt.work.attempt
        if name in self._attempts:
            loop.call_soon(lambda: attempt.tell(error="engine_error", reason="the attempt runs already"))
            return
        self._attempts[name] = attempt
        attempt.task = loop.create_task(self._run(attempt, max_tokens), name=f"attempt-{name}")

    async def _run(self, attempt: Attempt, max_tokens: int) -> None:
        """The attempt's own task. Its end, whatever it is, leaves nothing of it behind."""
        work = attempt.work
        handle: KvHandle | None = None
        try:
            refusal = self._refusal(work)
            if refusal is not None:
                attempt.tell(error=refusal[0], reason=refusal[1])
            elif len(work.output) >= max_tokens and not attempt.export_key:
                attempt.tell(finish_reason="length")
                if work.kv is not None:
                    self.release(work.kv)
            else:
                handle = await self._generate(attempt, max_tokens)
        except Exception:
            _log.exception("attempt_failed", extra={"attempt": work.attempt})
            attempt.tell(error="internal_error", reason="the engine adapter failed")
        finally:
            if handle is not None:
                self._leased[handle.key] = self._num_blocks(handle.num_tokens)
            if self._attempts.get(work.attempt) is attempt:
                del self._attempts[work.attempt]
            self._changed.set()

    async def _generate(self, attempt: Attempt, max_tokens: int) -> KvHandle | None:
        work = attempt.work
        params = RequestParams(
            attempt=work.attempt, export=attempt.export_key, pull=work.kv, output=work.output
        )
        try:
            sampling = sampling_params(work.sampling, params, max_tokens=max_tokens)
        except ValueError:
            attempt.tell(error="invalid_value", reason="sampling parameters that vLLM refuses")
            return None
        prompt = tokens_input(work.prompt, cache_salt=work.salt or None)
        stream = self._core.llm.generate(prompt, sampling, work.attempt)
        async with contextlib.aclosing(stream):
            return await attempt.run(stream)

    def _refusal(self, work: Work) -> tuple[str, str] | None:
        if self._failure or self._info is None or self._is_stopped:
            return "engine_error", self._failure or "the engine is not running"
        return fault(work, self._info.max_model_len, self._vocab_size)

    async def _release(self, kv: KvHandle) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._peers.release, kv)

    def _hear_report(self, report: TransferReport) -> None:
        if report.key:
            self._leased.pop(report.key, None)
            self._ended_blocks[report.outcome] += report.num_blocks
            self._changed.set()
        elif report.attempt in self._attempts:
            self._attempts[report.attempt].report(report)

    def _fail(self, reason: str) -> None:
        """The engine core is gone: everything running ends, and the worker is told once."""
        if self._failure or self._is_stopped:
            return
        self._failure = reason
        self._leased.clear()
        for attempt in list(self._attempts.values()):
            attempt.tell(error="engine_error", reason=reason)
            self.abort(attempt.work.attempt)
        if self._on_failure is not None:
            self._on_failure(reason)


def _directory_of(model: str) -> str:
    """Where the files of a Hugging Face id lie, which vLLM has fetched by now."""
    found = None if Path(model).is_dir() else try_to_load_from_cache(model, "config.json")
    return str(Path(found).parent) if isinstance(found, str) else model

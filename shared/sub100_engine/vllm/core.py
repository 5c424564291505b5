"""Starting and ending vLLM: one ``AsyncLLM``, whose engine core is a child process of ours."""

import asyncio
import contextlib
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.process import BaseProcess
from typing import Any

import msgspec
from vllm.config import KVEventsConfig, KVTransferConfig, StructuredOutputsConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.v1.engine.async_llm import AsyncLLM

from sub100_proto.sampling import MAX_LOGPROBS

from . import connector, core_output, draft_bias_patch, environment
from .config import VllmConfig
from .executor import InlineExecutor
from .hand_over import TransferSettings
from .puller import connector_of
from .runtime_dir import RuntimeDir
from .speculative import speculative_config
from .stats import EngineStats

_starting = asyncio.Lock()


class EngineCore:
    """``start`` -> ``llm`` -> ``stop``. ``on_death`` is called on the loop if the child dies by itself."""

    def __init__(self, config: VllmConfig, on_death: Callable[[str], None]) -> None:
        self._config = config
        self._on_death = on_death
        self._process: BaseProcess | None = None
        self._llm: AsyncLLM | None = None
        self._watched: int | None = None

    @property
    def llm(self) -> AsyncLLM:
        if self._llm is None:
            raise RuntimeError("the engine has not started")
        return self._llm

    @property
    def pid(self) -> int:
        return (self._process.pid or 0) if self._process else 0

    async def start(self, runtime: RuntimeDir, key: bytes, events_endpoint: str, stats: EngineStats) -> None:
        """Load the model; takes tens of seconds, off the event loop. Raises what vLLM raises."""
        args = engine_args(self._config, runtime, key, events_endpoint)
        loop = asyncio.get_running_loop()
        async with _starting:
            environment.prepare(self._config, runtime.path)
            if self._config.speculation.is_on:
                draft_bias_patch.allow()
            before = set(multiprocessing.active_children())
            thread = ThreadPoolExecutor(1, thread_name_prefix="vllm-start")
            async with core_output.captured(lambda: _core_since(before) is not None):
                starting = loop.run_in_executor(
                    thread, lambda: AsyncLLM.from_engine_args(args, stat_loggers=[stats.logger])
                )
                try:
                    self._llm = await asyncio.shield(starting)
                except asyncio.CancelledError:
                    starting.add_done_callback(_shut_down)
                    raise
                finally:
                    thread.shutdown(wait=False)
                    self._process = _core_since(before)
        if self._process is not None:
            self._watched = self._process.sentinel
            loop.add_reader(self._watched, self._died)

    async def stop(self, timeout_s: float) -> None:
        """End the child; bounded by ``timeout_s`` and a kill."""
        self._unwatch()
        llm, self._llm = self._llm, None
        if llm is not None:
            if llm.output_handler is not None:
                llm.output_handler.cancel()  # else it reports the end of the core as an error
            ending = asyncio.get_running_loop().run_in_executor(None, lambda: llm.shutdown(timeout=timeout_s))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ending, timeout_s + 5)
        process, self._process = self._process, None
        if process is not None:
            if process.is_alive():
                process.kill()
            await asyncio.get_running_loop().run_in_executor(None, process.join, 5)

    def _died(self) -> None:
        self._unwatch()
        code = self._process.exitcode if self._process else None
        self._on_death(f"engine core ended with exit code {code}")

    def _unwatch(self) -> None:
        if self._watched is not None:
            asyncio.get_running_loop().remove_reader(self._watched)
            self._watched = None


def _core_since(before: set[BaseProcess]) -> BaseProcess | None:
    """The engine core among the children that were not there before."""
    children = set(multiprocessing.active_children()) - before
    return next((child for child in children if child.name.startswith("EngineCore")), None)


def _shut_down(starting: "asyncio.Future[AsyncLLM]") -> None:
    """Nobody waits for this engine any more; without its child it fails soon, if it is not up already."""
    if not starting.cancelled() and starting.exception() is None:
        starting.result().shutdown(timeout=1)


def engine_args(config: VllmConfig, runtime: RuntimeDir, key: bytes, events_endpoint: str) -> AsyncEngineArgs:
    """Everything we ask of vLLM. A KV load that fails ends its request; it is never recomputed."""
    settings = TransferSettings(
        host=config.kv_host,
        port=config.kv_port,
        advertise=config.kv_advertise,
        key_file=str(runtime.write_secret("kv.key", key)),
        runtime_dir=str(runtime.path),
        transport=config.kv_transport,
        lease_s=config.lease_s,
        pull_timeout_s=config.pull_timeout_s,
        description=f"{config.name};{config.block_size};{config.dtype};{connector_of(config.kv_transport)}",
    )
    optional: dict[str, Any] = {}
    if config.max_model_len:
        optional["max_model_len"] = config.max_model_len
    if config.speculation.is_on:
        optional["speculative_config"] = speculative_config(config.speculation, config.max_num_seqs)
        optional["per_request_spec_decode_metrics"] = "summary"
    return AsyncEngineArgs(
        model=config.model,
        served_model_name=config.name,
        dtype=config.dtype,
        block_size=config.block_size,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_chunk_tokens,
        kv_cache_memory_bytes=config.kv_cache_bytes,
        enable_prefix_caching=True,
        enable_chunked_prefill=True,
        enforce_eager=not environment.compiles(config),
        max_logprobs=MAX_LOGPROBS,
        # One backend, or the first request with a grammar would choose it for the engine's life; no free
        # white space, in which weak models lose themselves until the limit.
        structured_outputs_config=StructuredOutputsConfig(backend="xgrammar", disable_any_whitespace=True),
        distributed_executor_backend=InlineExecutor,
        disable_log_stats=True,
        enable_log_requests=False,
        use_tqdm_on_load=False,
        kv_transfer_config=KVTransferConfig(
            kv_connector="Sub100Connector",
            kv_connector_module_path=connector.__name__,
            kv_role="kv_both",
            kv_load_failure_policy="fail",
            kv_connector_extra_config=msgspec.to_builtins(settings),
        ),
        kv_events_config=KVEventsConfig(
            enable_kv_cache_events=True, publisher="zmq", endpoint=events_endpoint
        ),
        **optional,
    )

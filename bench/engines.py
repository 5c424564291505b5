"""Engines without a system around them, for benchmarks of the engine itself: real vLLM, one pinned thread."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec

from sub100_engine.api import Engine, Output, Work
from sub100_engine.settings import EngineConfig
from sub100_proto.sampling import Sampling

_numbers = itertools.count(1)


class Told:
    """A sink that notes when which tokens came; seconds of ``time.perf_counter``."""

    def __init__(self, abort: Callable[[], None] = lambda: None) -> None:
        self.abort = abort
        self.started_s = time.perf_counter()
        self.at_s: list[float] = []
        self.ids: list[int] = []
        self.last: Output | None = None
        self._began = asyncio.Event()
        self._over = asyncio.Event()

    def __call__(self, output: Output) -> None:
        self.at_s.append(time.perf_counter())
        self.ids.extend(output.token_ids)
        self._began.set()
        if output.is_last:
            self.last = output
            self._over.set()

    @property
    def gaps_ms(self) -> list[float]:
        return [(after - before) * 1e3 for before, after in itertools.pairwise(self.at_s)]

    async def began(self) -> None:
        await self._began.wait()

    async def over(self) -> Output:
        await self._over.wait()
        assert self.last is not None
        if self.last.error:
            raise SystemExit(f"engine: {self.last.error} {self.last.reason}")
        return self.last


def decode(engine: Engine, prompt: list[int], max_tokens: int) -> Told:
    """Begin a greedy answer of exactly ``max_tokens``."""
    attempt = f"bench-{next(_numbers)}"
    told = Told(lambda: engine.abort(attempt))
    sampling = Sampling(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
    engine.decode(Work(attempt=attempt, prompt=prompt, sampling=sampling), told)
    return told


@contextlib.asynccontextmanager
async def running(model: Path, **fields: Any) -> AsyncIterator[Engine]:
    """One engine as a worker would start it; ``fields`` are EngineConfig's."""
    from sub100_engine.vllm.build import build_vllm

    config = msgspec.structs.replace(EngineConfig(model=str(model), num_threads=1), **fields)
    engine = build_vllm(config, b"a key for engines of one process")
    await engine.start(lambda _: None)
    try:
        yield engine
    finally:
        await engine.stop()

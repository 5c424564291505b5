"""Two engines that hand over, a third that says what is right, and what an attempt told."""

import asyncio
import itertools
import random
from collections.abc import Callable
from typing import Any

import msgspec

from sub100_engine.api import Engine, EngineInfo, KvChange, Output, Work
from sub100_proto.kv import KvHandle
from sub100_proto.sampling import Sampling

_numbers = itertools.count(1)


class Recorder:
    """A sink that keeps what it was told, and when it was told too much."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.outputs: list[Output] = []
        self.num_after_last = 0
        self._told = asyncio.Event()

    def __call__(self, output: Output) -> None:
        if self.is_over or output.attempt != self.work.attempt:
            self.num_after_last += 1
        self.outputs.append(output)
        self._told.set()

    @property
    def is_over(self) -> bool:
        return bool(self.outputs) and (self.last.is_last or self.last.kv is not None)

    @property
    def last(self) -> Output:
        return self.outputs[-1]

    @property
    def ids(self) -> list[int]:
        return [token for output in self.outputs for token in output.token_ids]

    async def until(self, is_so: Callable[["Recorder"], bool]) -> None:
        while not is_so(self):
            self._told.clear()
            await self._told.wait()


class Rig(msgspec.Struct):
    """Engines of one model that are started: two that hand over, and one (with a cache of its own) that
    says what is right; it may be None where a third engine costs too much, then ``decode`` is asked."""

    prefill: Engine
    decode: Engine
    prefill_info: EngineInfo
    prefill_changes: list[KvChange]
    """Every change that the prefill engine's listener was told, in order."""
    reference: Engine | None = None
    vocab_size: int = 1000
    timeout_s: float = 10.0
    text: Callable[[list[int]], str] = lambda ids: bytes(ids).decode()
    is_model: bool = False
    """Whether probabilities decide what comes."""

    def prompt(self, num_tokens: int) -> list[int]:
        """Token ids that no other test has used."""
        draw = random.Random(next(_numbers) * 7919 + num_tokens)
        return [draw.randrange(10, self.vocab_size) for _ in range(num_tokens)]

    def work(
        self,
        prompt: list[int],
        *,
        output: list[int] | None = None,
        kv: KvHandle | None = None,
        salt: str = "",
        **sampling: Any,
    ) -> Work:
        fields: dict[str, Any] = {"max_tokens": 12, "temperature": 0.0, **sampling}
        return Work(
            attempt=f"a{next(_numbers)}",
            prompt=prompt,
            sampling=msgspec.convert(fields, Sampling),
            output=output or [],
            kv=kv,
            salt=salt,
        )

    async def ended(self, recorder: Recorder) -> Recorder:
        """The recorder, when its attempt has come to its end."""
        async with asyncio.timeout(self.timeout_s):
            await recorder.until(lambda r: r.is_over)
        return recorder

    async def prefilled(self, work: Work) -> Recorder:
        recorder = Recorder(work)
        self.prefill.prefill(work, recorder)
        return await self.ended(recorder)

    async def decoded(self, work: Work, engine: Engine | None = None) -> Recorder:
        recorder = Recorder(work)
        (engine or self.decode).decode(work, recorder)
        return await self.ended(recorder)

    async def expected(self, prompt: list[int], **sampling: Any) -> list[int]:
        """What one engine says, all by itself. Ask it last: it warms the caches."""
        return (await self.decoded(self.work(prompt, **sampling), self.reference)).ids

    async def handed_over(self, prompt: list[int], **fields: Any) -> tuple[int, KvHandle]:
        """First token and KV of a prompt."""
        first = (await self.prefilled(self.work(prompt, **fields))).last
        assert first.kv is not None, first
        return first.token_ids[0], first.kv

    async def idle(self, engine: Engine) -> None:
        """Wait until the engine holds no block and runs nothing."""

        def is_idle() -> bool:
            load = engine.load()
            return not (load.kv_usage or load.num_running or load.num_waiting)

        await self.until(is_idle)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for a state that engines tell nobody of."""
        async with asyncio.timeout(self.timeout_s):
            while not is_so():  # noqa: ASYNC110
                await asyncio.sleep(0.005)

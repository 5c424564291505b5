"""KV on its way to sequences that wait for it: a task each, so that other sequences' steps go on."""

import asyncio
from collections.abc import Callable

from .clock import Clock
from .config import SimConfig
from .kv_pull import KvPuller
from .kv_wire import KvUnavailable, kv_payload
from .sequence import Sequence


class Pulls:
    """``on_pulled(sequence)`` or ``on_failed(sequence, code, reason)`` ends each, unless it is cancelled."""

    def __init__(
        self,
        config: SimConfig,
        clock: Clock,
        secret: bytes,
        on_pulled: Callable[[Sequence], None],
        on_failed: Callable[[Sequence, str, str], None],
    ) -> None:
        self._config = config
        self._clock = clock
        self._puller = KvPuller(config.layout, secret, clock.now)
        self._on_pulled = on_pulled
        self._on_failed = on_failed
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def begin(self, sequence: Sequence, takes_s: float) -> None:
        """``takes_s``: at least so long, by the timing model."""
        sequence.scheduled_at = self._clock.now()
        attempt = sequence.work.attempt
        task = asyncio.get_running_loop().create_task(self._pull(sequence, takes_s), name="sim pull")
        self._tasks[attempt] = task
        task.add_done_callback(lambda done: self._forget(attempt, done))

    def cancel(self, attempt: str) -> None:
        if (task := self._tasks.pop(attempt, None)) is not None and task is not asyncio.current_task():
            task.cancel()

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._puller.close()

    async def _pull(self, sequence: Sequence, takes_s: float) -> None:
        work, started_at = sequence.work, self._clock.now()
        assert work.kv is not None
        try:
            expected = kv_payload(work.prompt, self._config.block_size, work.salt)
            timeout_s = min(self._config.pull_timeout_s, work.kv.lease_s)
            await self._puller.pull(work.kv, expected, len(work.prompt), timeout_s)
        except KvUnavailable as gone:
            sequence.transfer_ms = (self._clock.now() - started_at) * 1e3
            self._on_failed(sequence, gone.code, gone.reason)
            return
        await self._clock.sleep_until(started_at + takes_s)
        sequence.is_pulling = False
        sequence.pulled_at = self._clock.now()
        sequence.transfer_ms = (sequence.pulled_at - started_at) * 1e3
        sequence.transferred_tokens = sequence.num_prompt - sequence.cached_tokens
        self._on_pulled(sequence)

    def _forget(self, attempt: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(attempt) is task:
            del self._tasks[attempt]

"""What a prefill leaves for decode: its prompt's blocks, pinned until they are pulled, released or late."""

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from sub100_proto.kv import KvHandle

from .block_pool import BlockPool
from .clock import Clock
from .config import SimConfig
from .faults import Faults
from .kv_wire import KvListener, kv_payload
from .leases import LeaseBook
from .sequence import Sequence

CONNECTOR: Final = "sim"


class HandOvers:
    """``on_end`` is called after blocks have become free. ``run`` ends the leases that fall due."""

    def __init__(
        self,
        config: SimConfig,
        pool: BlockPool,
        clock: Clock,
        secret: bytes,
        faults: Faults,
        on_end: Callable[[], None],
    ) -> None:
        self._config = config
        self._clock = clock
        self._on_end = on_end
        self._came = asyncio.Event()
        self.leases = LeaseBook(pool, config.lease_s)
        self._listener = KvListener(self.leases, config.layout, secret, self._on_pulled, faults)

    def __len__(self) -> int:
        return len(self.leases)

    async def start(self) -> None:
        """Raises OSError."""
        await self._listener.start(self._config.kv_host, self._config.kv_port)

    async def stop(self) -> None:
        await self._listener.stop()

    def pin(self, sequence: Sequence, num_bytes: int) -> KvHandle:
        """The sequence's hold on its prompt's blocks becomes a lease. ``num_bytes`` is what a pull moves."""
        config, work = self._config, sequence.work
        payload = kv_payload(work.prompt, config.block_size, work.salt)
        lease = self.leases.pin(sequence.blocks, payload, len(work.prompt), self._clock.now())
        sequence.blocks = []
        self._came.set()
        return KvHandle(
            connector=CONNECTOR,
            key=lease.key,
            num_tokens=lease.num_tokens,
            layout=config.layout,
            lease_s=config.lease_s,
            endpoint=self._listener.endpoint,
            host_id=socket.gethostname(),
            num_bytes=num_bytes,
        )

    def release(self, key: str) -> None:
        if self.leases.end(key, "released"):
            self._listener.cut(key)
            self._on_end()

    def end_all(self) -> None:
        self._expire(float("inf"))

    async def run(self) -> None:
        while True:
            deadline = self.leases.next_deadline
            if deadline is None:
                self._came.clear()
                await self._came.wait()
                continue
            await self._clock.sleep_until(deadline)
            self._expire(self._clock.now())

    def _expire(self, now: float) -> None:
        for key in self.leases.expire(now):
            self._listener.cut(key)
            self._on_end()

    def _on_pulled(self, key: str) -> None:
        if self.leases.end(key, "pulled"):
            self._on_end()

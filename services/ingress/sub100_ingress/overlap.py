"""A block of code that a cache hit may cut short: the dispatch that runs beside its look-up."""

import asyncio
from collections.abc import Callable
from types import TracebackType

from sub100_proto.cache import CacheHit, CacheReply


class UntilHit:
    """``with UntilHit(lookup, use) as race: ...`` in the task that is to be cut.

    A hit that comes while the block runs is given to ``use``, which returns whether it is still of use. If so
    the block is cancelled: its clean-up runs as if its client had left, behind whoever ``use`` has woken; the
    block ends without an error, and ``is_hit`` is set. The technique is that of asyncio.timeout: a
    cancellation from outside at the same time still propagates.
    """

    def __init__(self, lookup: "asyncio.Task[CacheReply]", use: Callable[[CacheHit], bool]) -> None:
        self._lookup = lookup
        self._use = use
        self._task: asyncio.Task[object] | None = None
        self._num_cancelling = 0
        self.is_hit = False

    def __enter__(self) -> "UntilHit":
        self._task = asyncio.current_task()
        assert self._task is not None
        self._num_cancelling = self._task.cancelling()
        self._lookup.add_done_callback(self._on_reply)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        task, self._task = self._task, None
        self._lookup.remove_done_callback(self._on_reply)
        if not self.is_hit or task is None:
            return False
        is_ours_alone = task.uncancel() <= self._num_cancelling
        return is_ours_alone and kind is not None and issubclass(kind, asyncio.CancelledError)

    def _on_reply(self, lookup: "asyncio.Task[CacheReply]") -> None:
        if self._task is None or lookup.cancelled() or lookup.exception() is not None:
            return
        reply = lookup.result()
        if isinstance(reply, CacheHit) and self._use(reply):
            self.is_hit = True
            self._task.cancel()

"""One generation and everybody who reads it: equal questions that are asked at once are answered once.

The generation belongs to nobody's request: it runs in the flight's own task and ends early only when the
last reader has left. All readers read the same list of pieces, each from its beginning, at its own pace and
into its own stream or body. A slow reader holds nobody up; when even the fastest is MAX_LAG pieces behind,
the generation waits for it.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from sub100_proto.cache import CacheHit
from sub100_shared import semconv

from .delivery import ChoiceDelivery
from .exchange import CacheFacts, Exchange
from .text import ScoredToken

MAX_LAG: Final = 64
BURST: Final = 32
"""Pieces that are written in one turn of the loop: an answer that is all there holds up no other stream for
more than half a millisecond."""

LEAVE_TIMEOUT_S: Final = 5.0


class _Seat:
    """One reader: how many pieces it has taken, and what wakes it."""

    def __init__(self) -> None:
        self.position = 0
        self.is_poked = False
        self.waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class Flight:
    """``run`` is the generation's own exchange; it shares ledger and spans with the first reader's.

    Towards the generator it is a Delivery. Its owner sets ``task`` and calls ``end`` exactly once, unless
    the task is cancelled.
    """

    task: asyncio.Task[None]

    def __init__(self, leader: Exchange) -> None:
        self.run = leader.branch()
        self.is_over = False
        self._error: Exception | None = None
        self._leader: Exchange | None = leader
        self._seats: set[_Seat] = set()
        self._room: asyncio.Future[None] | None = None

    @property
    def num_readers(self) -> int:
        return len(self._seats)

    @property
    def has_begun(self) -> bool:
        """Some reader may have been given something."""
        return bool(self.run.pieces)

    async def text(self, text: str, scored: Sequence[ScoredToken] = ()) -> None:
        """``run.pieces`` has grown by ``text``; waits while all readers are far behind.

        Scores are not passed on: what asks for them is not cacheable."""
        self._wake_all()
        while self._seats and self._lag() > MAX_LAG:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    async def keep_alive(self) -> None:
        for seat in self._seats:
            seat.is_poked = True
        self._wake_all()

    def replay(self, hit: CacheHit) -> None:
        """The answer comes from the cache; whatever a dispatch beside it had begun is forgotten."""
        answer, run = hit.answer, self.run
        run.start_over()
        run.tier = f"cache_{hit.tier}"
        run.cache = CacheFacts(outcome=hit.tier, age_s=hit.age_s, similarity=hit.similarity)
        run.num_prompt_tokens = answer.num_prompt_tokens
        run.num_completion_tokens = answer.num_completion_tokens
        run.pieces = list(answer.pieces)
        run.finish_reason = answer.finish_reason
        self.end()

    def end(self, error: Exception | None = None) -> None:
        """No piece follows: readers finish, or raise ``error`` after the pieces there are."""
        self.is_over = True
        self._error = error
        self._wake_all()

    async def read(self, ex: Exchange, client: ChoiceDelivery) -> None:
        """Deliver everything to one client; raises the generation's error.

        Whoever reads last and leaves early ends the generation, and waits until engine and KV are free.
        """
        seat = _Seat()
        self._seats.add(seat)
        is_leader = ex is self._leader
        wait = None if is_leader else ex.ledger.open(semconv.HOP_JOIN)
        try:
            while True:
                while seat.position < len(self.run.pieces):
                    if seat.position == 0:
                        ex.adopt(self.run, is_own=is_leader)
                        if wait is not None:
                            ex.ledger.close(wait)
                    piece = self.run.pieces[seat.position]
                    seat.position += 1
                    self._make_room()
                    await client.text(piece)
                    if seat.position % BURST == 0:
                        await asyncio.sleep(0)
                if self.is_over:
                    break
                if seat.is_poked:
                    seat.is_poked = False
                    await client.keep_alive()
                    continue
                seat.waiter = asyncio.get_running_loop().create_future()
                await seat.waiter
            ex.adopt(self.run, is_own=is_leader)
            if self._error is not None:
                raise self._error
            await client.finish()
        finally:
            ex.adopt(self.run, is_own=is_leader)
            await self._leave(seat, is_leader)

    def close(self) -> None:
        """The task ends: spans whose owner has gone are ended here. Idempotent."""
        if self._leader is None:
            for span, _, end_ns in self.run.hop_spans:
                span.end(end_ns)
            self.run.hop_spans = []

    async def _leave(self, seat: _Seat, is_leader: bool) -> None:
        self._seats.discard(seat)
        if not self._seats:
            if not self.is_over:
                self.task.cancel()
            await asyncio.wait({self.task}, timeout=LEAVE_TIMEOUT_S)
        else:
            self._make_room()
        if is_leader:  # its books are closed next: spans that come later are not in them
            self._leader = None
            self.run.hop_spans = []

    def _lag(self) -> int:
        return len(self.run.pieces) - max(seat.position for seat in self._seats)

    def _make_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _wake_all(self) -> None:
        for seat in self._seats:
            seat.wake()

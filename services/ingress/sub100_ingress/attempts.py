"""Attempts in flight, and the one subscription that feeds them.

Every job has a nonce, its attempt. Events and claims carry it; what carries an unknown one (a fenced,
aborted or finished attempt) is dropped, and its worker told to stop if it goes on (``strays``). The reader
of an attempt is one coroutine, woken at most once per message: there is no task and no queue per token.
"""

import asyncio
import enum
import logging
import secrets
from collections import deque
from collections.abc import Iterator

import msgspec

from sub100_proto import codec
from sub100_proto.jobs import Accepted, Busy
from sub100_proto.placement import WorkerRef
from sub100_proto.stream import Failed, FirstToken, StreamEvent, Tokens
from sub100_proto.subjects import Role
from sub100_shared.bus import Incoming
from sub100_shared.errors import RETRYABLE_ELSEWHERE

from .strays import Strays

_log = logging.getLogger(__name__)


def nonce() -> str:
    """96 random bits: no worker can guess another stream's attempt."""
    return secrets.token_urlsafe(12)


class Reached(enum.Enum):
    """How far a job came."""

    NOBODY = enum.auto()
    """Nobody was there to take it."""
    A_REFUSAL = enum.auto()
    """The worker did not take it."""
    A_WORKER = enum.auto()
    """It was taken, or may have been."""


class AttemptLost(Exception):
    """The worker will not go on with the attempt. ``elsewhere``: another worker may."""

    def __init__(
        self,
        worker: WorkerRef,
        code: str,
        *,
        elsewhere: bool,
        reason: str = "",
        reached: Reached = Reached.A_WORKER,
    ) -> None:
        super().__init__(f"{worker.worker_id}: {code}")
        self.worker = worker
        self.code = code
        self.elsewhere = elsewhere
        self.reason = reason
        self.reached = reached

    @property
    def is_refusal(self) -> bool:
        """Nothing was done."""
        return self.reached is not Reached.A_WORKER


class Attempt:
    """One job at one worker. Output positions are checked here: tokens come out in order, once each."""

    def __init__(self, worker: WorkerRef, role: Role, position: int, max_buffered: int) -> None:
        self.nonce = nonce()
        self.worker = worker
        self.role = role
        self.claimed = False
        self.is_over = False
        self._position = position
        self._max_buffered = max_buffered
        self._events: deque[FirstToken | Tokens] = deque()
        self._lost: AttemptLost | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._gap_asked = False
        self.gap_at: int | None = None
        """The position from which tokens are missing, until the reader has asked for them."""
        self.source: WorkerRef | None = None
        """Whose KV it waits for: until its first token it cannot outlive that worker."""
        self.has_token = False
        self.is_live = True
        """Set by the reader's side on each event, cleared by the watchdog on each look."""

    @property
    def needs_abort(self) -> bool:
        """Whether the worker may hold something for it: work, or KV whose handle nobody has read."""
        return not self.is_over or bool(self._events)

    def accept(self, event: StreamEvent) -> None:
        """Take an event from the bus: in order, without repeats; nothing is taken past a gap, a full buffer
        or a loss."""
        self.claimed = True
        if self._lost is not None:
            return
        if len(self._events) >= self._max_buffered and not isinstance(event, Failed):
            self.lose("slow_client", elsewhere=False)
            return
        match event:
            case Failed(code=code, reason=reason):
                self.lose(code, elsewhere=code in RETRYABLE_ELSEWHERE, reason=reason)
                return
            case FirstToken():
                if self._position > 0:
                    return
                self._position = 1
                self.is_over = True  # a prefill job has no second event
            case Tokens(position=position, ids=ids):
                end = position + len(ids)
                if position > self._position:
                    self.ask_again()
                    return
                if end < self._position or (end == self._position and not event.finish_reason):
                    return
                if position < self._position:
                    event = _tail(event, self._position - position)
                self._position = end
                self._gap_asked = False
                self.gap_at = None
                self.is_over = bool(event.finish_reason)
        self.has_token = self.is_live = True
        self._events.append(event)
        self._wake()

    def ask(self) -> None:
        """What comes next may have been told and lost on its way: have the reader ask for it."""
        if not self.is_over:
            self.gap_at = self._position
            self._wake()

    def ask_again(self) -> None:
        """Something was lost: ask for it, once until it comes."""
        if not self._gap_asked and not self.is_over:
            self._gap_asked = True
            self.ask()

    def lose_gap_memory(self) -> None:
        """What was asked for may be lost, too."""
        self._gap_asked = False

    @property
    def has_gap(self) -> bool:
        """Tokens are missing; what follows them is not taken."""
        return self._gap_asked

    def take_gap(self) -> int | None:
        """The position from which to ask again, given once; None if nothing is missing."""
        position, self.gap_at = self.gap_at, None
        return position

    def claim(self, claim: Accepted | Busy) -> None:
        match claim:
            case Accepted():
                self.claimed = True
            case Busy(code=code):
                self.lose(code, elsewhere=code in RETRYABLE_ELSEWHERE, reached=Reached.A_REFUSAL)

    def lose(
        self,
        code: str,
        *,
        elsewhere: bool = True,
        reason: str = "",
        reached: Reached = Reached.A_WORKER,
    ) -> None:
        """Nothing more will come: the reader gets AttemptLost after what has arrived."""
        if self._lost is None and not self.is_over:
            self._lost = AttemptLost(self.worker, code, elsewhere=elsewhere, reason=reason, reached=reached)
            self._wake()

    def lose_unclaimed(self) -> None:
        """The claim timer's callback."""
        if not self.claimed:
            self.lose("worker_lost")

    async def next(self) -> FirstToken | Tokens | None:
        """The next event; None when woken for something else (a gap, the watchdog).

        Raises AttemptLost. One reader at a time.
        """
        if not self._events:
            if self._lost is not None:
                raise self._lost
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._events:
            return self._events.popleft()
        if self._lost is not None:
            raise self._lost
        return None

    def poke(self) -> None:
        """Wake the reader without an event."""
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _tail(event: Tokens, num_known: int) -> Tokens:
    """The event without its first tokens, nor what the attempt's first event told beside them."""
    row_bytes = len(event.logprobs) // max(1, len(event.ids))
    return msgspec.structs.replace(
        event,
        ids=event.ids[num_known:],
        position=event.position + num_known,
        logprobs=event.logprobs[num_known * row_bytes :],
        timing=None,
        cached_tokens=0,
        transferred_tokens=0,
        prompt_logprobs=b"",
    )


class AttemptTable:
    """Nonce -> attempt, fed by the ingress's stream subscription (``on_message``)."""

    def __init__(self, strays: Strays) -> None:
        self._strays = strays
        self._attempts: dict[str, Attempt] = {}
        self.num_unknown_events = 0

    def __len__(self) -> int:
        return len(self._attempts)

    def add(self, attempt: Attempt) -> None:
        self._attempts[attempt.nonce] = attempt

    def __iter__(self) -> Iterator[Attempt]:
        """A copy: attempts may end while one looks."""
        return iter(list(self._attempts.values()))

    def remove(self, attempt: Attempt) -> None:
        """Fence the attempt: later events of it are dropped. Idempotent."""
        if self._attempts.pop(attempt.nonce, None) is not None:
            self._strays.on_fenced(attempt.nonce)

    def on_message(self, msg: Incoming) -> None:
        """Listener of ``subjects.stream_all``."""
        owner, _, last = msg.subject.rpartition(".")
        if last == "events":
            self._on_batch(msg.data)
        elif owner.endswith(".claim"):
            self._on_claim(last, msg)

    def on_reconnect(self, connected: bool) -> None:
        """Listener of the bus's state: what was sent while we were away is lost and must be asked for."""
        if connected:
            for attempt in self:
                attempt.lose_gap_memory()
                attempt.ask_again()

    def _on_batch(self, data: bytes) -> None:
        try:
            batch = codec.decode_stream_batch(data)
        except msgspec.MsgspecError as error:
            _log.error("unreadable stream batch", extra={"error": str(error)})
            return
        for event in batch.events:
            attempt = self._attempts.get(event.attempt)
            if attempt is None:
                self.num_unknown_events += 1
                self._strays.on_event(batch.worker_id, event)
            elif attempt.worker.worker_id != batch.worker_id:
                self.num_unknown_events += 1
            else:
                attempt.accept(event)

    def _on_claim(self, nonce_: str, msg: Incoming) -> None:
        attempt = self._attempts.get(nonce_)
        if attempt is None:
            return
        if msg.is_no_responders:
            attempt.lose("worker_lost", reached=Reached.NOBODY)
            return
        try:
            attempt.claim(codec.decode_claim(msg.data))
        except msgspec.MsgspecError as error:
            _log.error("unreadable claim", extra={"error": str(error)})
            attempt.lose("worker_lost")

"""Engine outputs -> events on the bus: one batch per engine step and ingress, re-sendable for a while.

The engine tells its outputs one by one, all of a step in one turn of the event loop; they are gathered
and leave together at the end of that turn. There is no task per token and no timer per stream.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from sub100_proto import codec
from sub100_proto.stream import Failed, FirstToken, StreamBatch, StreamEvent, Timing, Tokens
from sub100_shared.bus import BusUnavailable, PayloadTooLarge

_log = logging.getLogger(__name__)

Publish = Callable[[str, bytes], Awaitable[None]]

_MAX_KEPT_STREAMS: Final = 1024
_MAX_KEPT_TOKENS: Final = 65_536
_MAX_UNSENT_EVENTS: Final = 16_384
"""While there is no connection, and while one takes nothing. What is lost beyond is asked for."""
_TOKEN_BYTES: Final = 36
"""A token id as a Python int in a list."""


class Stream:
    """One attempt's way to its ingress, and the tokens that it may have to send again."""

    __slots__ = (
        "attempt",
        "cached_tokens",
        "events",
        "finish_reason",
        "first_position",
        "logprobs",
        "only_event",
        "prompt_logprobs",
        "timing",
        "tokens",
        "transferred_tokens",
    )

    def __init__(self, attempt: str, events: str, first_position: int) -> None:
        self.attempt = attempt
        self.events = events
        self.first_position = first_position
        self.tokens: list[int] = []
        self.finish_reason = ""
        self.logprobs: bytearray | None = None
        """A row for each of ``tokens``, where they were asked for."""
        self.prompt_logprobs = b""
        self.timing: Timing | None = None
        """Of the first event, as are the counts; None before it."""
        self.cached_tokens = 0
        self.transferred_tokens = 0
        self.only_event: FirstToken | Failed | None = None
        """What is sent again instead of tokens: a prefill's one event, or how the attempt failed."""

    @property
    def position(self) -> int:
        """The output position of the next token."""
        return self.first_position + len(self.tokens)

    @property
    def cost(self) -> int:
        """What keeping it takes, in tokens' worth of memory."""
        return len(self.tokens) + (len(self.logprobs or b"") + len(self.prompt_logprobs)) // _TOKEN_BYTES

    def keep_logprobs(self, rows: bytes, prompt_rows: bytes) -> None:
        if self.logprobs is None:
            self.logprobs = bytearray()
        self.logprobs += rows
        if prompt_rows:
            self.prompt_logprobs = prompt_rows

    def again(self, position: int) -> Tokens:
        """What was told from an output position on; from the first on, all that came with it."""
        start = position - self.first_position
        ids = tuple(self.tokens[start:])
        rows = b""
        if self.logprobs and ids:
            rows = bytes(self.logprobs[start * (len(self.logprobs) // len(self.tokens)) :])
        if start:
            return Tokens(self.attempt, position, ids, self.finish_reason, logprobs=rows)
        return Tokens(
            self.attempt,
            position,
            ids,
            self.finish_reason,
            self.timing,
            self.cached_tokens,
            self.transferred_tokens,
            rows,
            self.prompt_logprobs,
        )


class Streams:
    """All streams of a worker. ``publish`` sends bytes to a subject and may raise BusUnavailable."""

    def __init__(self, worker_id: str, epoch: int, publish: Publish) -> None:
        self._worker_id = worker_id
        self._epoch = epoch
        self._publish = publish
        self._pending: dict[str, list[StreamEvent]] = {}
        self._unsent: dict[str, list[StreamEvent]] = {}
        self._num_unsent = 0
        self._num_pending = 0
        self._num_lost = 0
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._live: dict[str, Stream] = {}
        self._ended: OrderedDict[str, Stream] = OrderedDict()
        self._num_kept_tokens = 0

    def open(self, attempt: str, events: str, first_position: int) -> Stream:
        stream = self._live[attempt] = Stream(attempt, events, first_position)
        return stream

    def get(self, attempt: str) -> Stream | None:
        return self._live.get(attempt)

    def send(self, stream: Stream, event: StreamEvent) -> None:
        """Queue an event for the end of this turn of the loop."""
        if not isinstance(event, Tokens):
            stream.only_event = event
        self.tell(stream.events, event)

    def tell(self, subject: str, event: StreamEvent) -> None:
        """The same for an attempt that has no stream here."""
        if self._num_pending >= _MAX_UNSENT_EVENTS:
            self._num_lost += 1
            return
        self._num_pending += 1
        pending = self._pending.get(subject)
        if pending is None:
            self._pending[subject] = [event]
            self._wake.set()
            self._idle.clear()
        else:
            pending.append(event)

    def close(self, stream: Stream) -> None:
        """The attempt is over: keep its tokens for a while, within the bounds."""
        if self._live.pop(stream.attempt, None) is None:
            return
        self._ended[stream.attempt] = stream
        self._num_kept_tokens += stream.cost
        while len(self._ended) > _MAX_KEPT_STREAMS or self._num_kept_tokens > _MAX_KEPT_TOKENS:
            _, oldest = self._ended.popitem(last=False)
            self._num_kept_tokens -= oldest.cost

    def live(self) -> list[Stream]:
        return list(self._live.values())

    def drop(self, attempt: str) -> None:
        """The attempt was aborted: nothing of it is sent or kept."""
        self._live.pop(attempt, None)

    def resend(self, attempt: str, position: int) -> bool:
        """Send again from an output position; False if the tokens are gone."""
        stream = self._live.get(attempt) or self._ended.get(attempt)
        if stream is not None and stream.only_event is not None:
            self.send(stream, stream.only_event)
            return True
        if stream is None or position < stream.first_position:
            return False
        again = stream.again(position)
        if again.ids or again.finish_reason:
            self.send(stream, again)
        return True

    def send_unsent(self) -> None:
        """The connection is back: queue what could not be sent, before what came since."""
        unsent, self._unsent = self._unsent, {}
        self._num_unsent = 0
        for subject, events in unsent.items():
            self._pending[subject] = events + self._pending.get(subject, [])
            self._wake.set()
            self._idle.clear()

    async def flush(self) -> None:
        """Wait until everything queued has been published."""
        await self._idle.wait()

    async def run(self) -> None:
        """The one sender: woken once a step, when the step's outputs are in."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            pending, self._pending, self._num_pending = self._pending, {}, 0
            for subject, events in pending.items():
                await self._send(subject, events)
            if self._num_lost:
                _log.warning("events lost: the bus was slow", extra={"num_events": self._num_lost})
                self._num_lost = 0
            if not self._pending:
                self._idle.set()

    async def _send(self, subject: str, events: list[StreamEvent]) -> None:
        """What is too much for one message leaves one by one; an event that is too large by itself is its
        attempt's end, for it would be too large the next time."""
        batch = StreamBatch(self._worker_id, self._epoch, tuple(events))
        try:
            await self._publish(subject, codec.encode(batch))
        except BusUnavailable:
            self.keep_unsent(subject, events)
        except PayloadTooLarge as error:
            if len(events) > 1:
                for event in events:
                    await self._send(subject, [event])
                return
            _log.error("event not sent", extra={"size": error.size, "limit": error.limit})
            if not isinstance(events[0], Failed):
                reason = "a message cannot hold what was asked for of a token"
                await self._send(subject, [Failed(events[0].attempt, "request_too_large", reason)])

    def keep_unsent(self, subject: str, events: list[StreamEvent]) -> None:
        """A short loss of the connection costs no stream its end; beyond the bound events are lost."""
        if self._num_unsent + len(events) > _MAX_UNSENT_EVENTS:
            _log.warning("events lost: no connection", extra={"num_events": len(events)})
            return
        self._unsent.setdefault(subject, []).extend(events)
        self._num_unsent += len(events)

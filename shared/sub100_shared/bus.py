"""The bus: with ``durable_log`` the only importer of nats.

``listen`` hands messages to a plain function, one at a time and in order: for streams of events.
``serve`` runs a coroutine per message, bounded: for requests that may wait. Both are subscribed, and
known to the server, when the call returns.

Everything raises BusUnavailable at once while the connection is away: nothing is buffered for a
server that may never return. Reconnection is automatic and unbounded; ``on_state`` tells of changes.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from sub100_proto import headers as names

from .durable_log import DurableLog
from .errors import Refused

_log = logging.getLogger(__name__)

CONNECT_RETRY_S: Final = 0.5
PENDING_MESSAGES: Final = 65_536
PENDING_BYTES: Final = 256 * 2**20


class BusUnavailable(Refused):
    """No connection to NATS."""

    def __init__(self, message: str = "no connection to NATS") -> None:
        super().__init__("bus_unavailable", message)


class NoResponders(Exception):
    """Nobody listens on the subject of a request."""

    def __init__(self, subject: str) -> None:
        super().__init__(f"no responders on {subject}")
        self.subject = subject


class ReplyTimeout(Exception):
    """A request was not answered in time; it may still be worked on."""

    def __init__(self, subject: str, timeout_s: float) -> None:
        super().__init__(f"no reply on {subject} within {timeout_s:.3f} s")
        self.subject = subject
        self.timeout_s = timeout_s


class PayloadTooLarge(Exception):
    """The message is larger than the server's ``max_payload``."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"{size} bytes are more than the bus carries ({limit})")
        self.size = size
        self.limit = limit


class Incoming(msgspec.Struct, frozen=True, gc=False):
    """A received message. ``headers`` is empty, never None."""

    subject: str
    data: bytes
    reply: str
    headers: dict[str, str]

    @property
    def is_no_responders(self) -> bool:
        """NATS says that nobody listens where the message with this reply subject was published."""
        return self.headers.get(names.STATUS) == names.NO_RESPONDERS


Listener = Callable[[Incoming], None]
Handler = Callable[[Incoming], Awaitable[bytes | None]]
StateListener = Callable[[bool], None]


class Bus:
    """One NATS connection of one process."""

    def __init__(self, client: Client) -> None:
        self._nc = client
        self._subscriptions: list[Subscription] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._state_listeners: list[StateListener] = []
        self._is_established = False
        self._is_closing = False
        self._connect_error: Exception | None = None
        self._logged_error = ""
        self.num_slow_consumer_drops = 0
        self.num_reconnects = 0

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        name: str,
        user: str = "",
        password: str = "",
        on_wait: Callable[[str], None] | None = None,
    ) -> "Bus":
        """Connect, waiting for the server as long as it takes; ``on_wait(reason)`` is told each try.

        A refused password is waited for too: servers get their users while they run.
        """
        options: dict[str, object] = {"user": user, "password": password} if user else {}
        while True:
            client = Client()
            bus = cls(client)
            try:
                await client.connect(
                    url,
                    name=name,
                    inbox_prefix=f"_INBOX_{user}" if user else "_INBOX",
                    allow_reconnect=False,  # the client's own first connection never gives up, nor says why
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0.25,  # type: ignore[arg-type]  # annotated int, used as seconds
                    connect_timeout=2,
                    ping_interval=5,
                    max_outstanding_pings=2,
                    error_cb=bus._on_error,
                    disconnected_cb=bus._on_disconnected,
                    reconnected_cb=bus._on_reconnected,
                    **options,  # type: ignore[arg-type]
                )
                client.options |= {"allow_reconnect": True, "max_reconnect_attempts": -1}
                bus._is_established = True
                return bus
            except (OSError, TimeoutError, nats.errors.Error) as error:
                if on_wait is not None:
                    cause = bus._connect_error or error
                    on_wait(f"waiting for NATS at {address_of(url)}: {cause or type(cause).__name__}")
                with contextlib.suppress(Exception):
                    await client.close()
                await asyncio.sleep(CONNECT_RETRY_S)

    @property
    def is_connected(self) -> bool:
        return bool(self._nc.is_connected)

    @property
    def max_payload(self) -> int:
        """Bytes that one message may carry, as the server said."""
        return int(self._nc.max_payload)

    @property
    def num_pending(self) -> int:
        """Messages received and not yet handled, over all subscriptions."""
        return sum(subscription.pending_msgs for subscription in self._subscriptions)

    @property
    def pending_bytes(self) -> int:
        return sum(subscription.pending_bytes for subscription in self._subscriptions)

    def on_state(self, listener: StateListener) -> None:
        """``listener(connected)`` is called at each loss and return of the connection."""
        self._state_listeners.append(listener)

    async def publish(
        self, subject: str, payload: bytes, *, reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Send; raises BusUnavailable or PayloadTooLarge. A reply subject asks NATS to tell it when
        nobody listens.

        While NATS is slow to read it waits, and can be cancelled: what is sent may leave all the same.
        """
        if not self._nc.is_connected:
            raise BusUnavailable
        num_cancelled = _num_cancelled()
        try:
            await self._nc.publish(subject, payload, reply, headers)
            if _num_cancelled() > num_cancelled:  # the client forgets it
                raise asyncio.CancelledError
        except nats.errors.MaxPayloadError as error:
            raise PayloadTooLarge(len(payload), self.max_payload) from error
        except (nats.errors.Error, OSError) as error:
            raise BusUnavailable(str(error)) from error

    async def request(
        self, subject: str, payload: bytes, *, timeout_s: float, headers: dict[str, str] | None = None
    ) -> Incoming:
        """Send and wait for one reply; raises NoResponders, ReplyTimeout, BusUnavailable, PayloadTooLarge.

        A cancellation that comes together with the reply is raised: the client's ``asyncio.wait_for`` forgets
        it (up to Python 3.11), and the work of somebody who has left would go on to its end.
        """
        if not self._nc.is_connected:
            raise BusUnavailable
        num_cancelled = _num_cancelled()
        try:
            reply = await self._nc.request(subject, payload, timeout_s, headers=headers)
            if _num_cancelled() > num_cancelled:
                raise asyncio.CancelledError
            return _incoming(reply)
        except nats.errors.NoRespondersError as error:
            raise NoResponders(subject) from error
        except nats.errors.TimeoutError as error:
            raise ReplyTimeout(subject, timeout_s) from error
        except nats.errors.MaxPayloadError as error:
            raise PayloadTooLarge(len(payload), self.max_payload) from error
        except (nats.errors.Error, OSError) as error:
            raise BusUnavailable(str(error)) from error

    def durable_log(self, name: str, subject: str) -> DurableLog:
        """The log ``name`` of what is published to ``subject``; nothing is asked of the server yet."""
        return DurableLog(self._nc, name, subject)

    def new_inbox(self) -> str:
        """A subject that nobody else knows, for replies to this process: listen on ``<inbox>.*``."""
        return str(self._nc.new_inbox())

    async def listen(self, subject: str, listener: Listener) -> None:
        """Call ``listener`` for each message, in order. It must not block; what it raises is logged."""

        async def on_message(msg: Msg) -> None:
            try:
                listener(_incoming(msg))
            except Exception:
                _log.exception("listener failed", extra={"subject": msg.subject})

        await self._subscribe(subject, "", on_message)

    async def serve(
        self,
        subject: str,
        handler: Handler,
        *,
        queue: str = "",
        max_inflight: int = 1024,
        when_full: Callable[[Incoming], bytes | None] | None = None,
    ) -> None:
        """Run ``handler`` in a task per message and send what it returns to the reply subject.

        At ``max_inflight`` running handlers a message is answered by ``when_full`` (nothing, if None).
        A handler that raises is logged and costs its own request only.
        """
        running: set[asyncio.Task[None]] = set()

        async def run(msg: Incoming) -> None:
            try:
                answer = await handler(msg)
                if answer is not None and msg.reply:
                    await self.publish(msg.reply, answer)
            except BusUnavailable:
                _log.warning("reply lost: no connection", extra={"subject": msg.subject})
            except Exception:
                _log.exception("handler failed", extra={"subject": msg.subject})

        async def on_message(msg: Msg) -> None:
            incoming = _incoming(msg)
            if len(running) >= max_inflight:
                answer = when_full(incoming) if when_full is not None else None
                if answer is not None and incoming.reply:
                    await self.publish(incoming.reply, answer)
                return
            task = asyncio.create_task(run(incoming))
            running.add(task)
            self._tasks.add(task)
            task.add_done_callback(running.discard)
            task.add_done_callback(self._tasks.discard)

        await self._subscribe(subject, queue, on_message)

    async def stop_receiving(self) -> None:
        """First step of a drain: take no new message, finish those that have arrived."""
        subscriptions, self._subscriptions = self._subscriptions, []
        for subscription in subscriptions:
            with contextlib.suppress(nats.errors.Error, OSError):
                await subscription.drain()  # type: ignore[no-untyped-call]

    async def close(self, timeout_s: float = 5.0) -> None:
        """Last step of a drain: running handlers end, replies leave, the connection closes. Bounded."""
        self._is_closing = True
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=timeout_s)
            for task in late:
                task.cancel()
        with contextlib.suppress(Exception):
            if self._nc.is_connected:
                await asyncio.wait_for(self._nc.flush(), timeout_s)
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._nc.close(), timeout_s)

    async def _subscribe(
        self, subject: str, queue: str, on_message: Callable[[Msg], Awaitable[None]]
    ) -> None:
        subscription = await self._nc.subscribe(
            subject,
            queue,
            cb=on_message,
            pending_msgs_limit=PENDING_MESSAGES,
            pending_bytes_limit=PENDING_BYTES,
        )
        self._subscriptions.append(subscription)
        # nats-py writes a PING past commands that still wait in its buffer: only the second is behind SUB.
        await self._nc.flush()
        await self._nc.flush()

    async def _on_error(self, error: Exception) -> None:
        if not self._is_established:
            self._connect_error = error  # told by ``connect``
            return
        if isinstance(error, nats.errors.SlowConsumerError):
            self.num_slow_consumer_drops += 1
            if self.num_slow_consumer_drops & (self.num_slow_consumer_drops - 1) == 0:  # 1, 2, 4, 8, ...
                _log.error(
                    "slow consumer",
                    extra={"subject": error.subject, "num_dropped": self.num_slow_consumer_drops},
                )
            return
        text = str(error) or type(error).__name__
        if text != self._logged_error:  # each try to reconnect fails in the same way
            self._logged_error = text
            _log.warning("bus error", extra={"error": text})

    async def _on_disconnected(self) -> None:
        if self._is_closing or not self._is_established:
            return
        _log.warning("bus disconnected")
        self._tell(connected=False)

    async def _on_reconnected(self) -> None:
        self.num_reconnects += 1
        self._logged_error = ""
        _log.info("bus reconnected")
        self._tell(connected=True)

    def _tell(self, *, connected: bool) -> None:
        for listener in self._state_listeners:
            listener(connected)


def address_of(url: str) -> str:
    """The URL, or several with commas between, as it may be shown: without user and password."""
    shown = []
    for each in url.split(","):
        scheme, separator, rest = each.rpartition("://")
        shown.append(scheme + separator + rest.rpartition("@")[2])
    return ",".join(shown)


def _num_cancelled() -> int:
    """How often the current task was cancelled."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def _incoming(msg: Msg) -> Incoming:
    found: Mapping[str, str] | None = msg.headers
    return Incoming(msg.subject, msg.data, msg.reply or "", dict(found) if found else {})

"""One exchange, step by step: prompt, generation, end; or, if it is cacheable, see ``cached``.

Every exchange ends in ``close_exchange`` exactly once, whether it was answered, refused, lost, or left
by its client; nothing of it survives: attempts are aborted, KV released, the tenant's slot given back.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator

from sub100_shared.errors import Evicted, Refused, Sub100Error

from .cached import CachedAnswers
from .choices import Choices
from .closing import CLIENT_CLOSED_STATUS, close_exchange
from .delivery import Responder
from .exchange import Exchange
from .keys import Tenant
from .prepare import Preparer
from .request_metrics import CANCELLED, RequestMetrics

_log = logging.getLogger(__name__)


class Serving:
    """Answers exchanges; counts those in flight, so that drain can wait for them."""

    def __init__(
        self,
        cached: CachedAnswers,
        preparer: Preparer,
        choices: Choices,
        metrics: RequestMetrics,
        *,
        max_inflight: int,
    ) -> None:
        self._cached = cached
        self._preparer = preparer
        self._choices = choices
        self._metrics = metrics
        self._max_inflight = max_inflight
        self._num_by_tenant: dict[str, int] = {}
        self.num_inflight = 0
        self.is_draining = False
        self._idle = asyncio.Event()
        self._idle.set()

    async def answer(self, ex: Exchange, responder: Responder, body_bytes: int) -> None:
        """Run the exchange to its end. Raises CancelledError only."""
        try:
            self._take(ex.tenant)
        except Refused as error:
            ex.code = error.code
            await responder.fail(error)
            close_exchange(ex, responder.status, self._metrics)
            return
        try:
            await self._answer(ex, responder, body_bytes)
        except asyncio.CancelledError:
            if ex.answered_ms is None:
                ex.code = ex.code or CANCELLED
            raise
        except Sub100Error as error:
            ex.code = error.code
            await responder.fail(error)
        except Exception:
            ex.code = "internal_error"
            _log.exception("request failed", extra={"request_id": ex.request_id})
            await responder.fail(Evicted("internal_error", "internal error"))
        finally:
            self._give(ex.tenant)
            close_exchange(ex, responder.status or CLIENT_CLOSED_STATUS, self._metrics)

    async def _answer(self, ex: Exchange, responder: Responder, body_bytes: int) -> None:
        if ex.key is not None:
            await self._cached.answer(ex, ex.key, responder, body_bytes)
            return
        prompt = await self._preparer.prepare(ex, body_bytes)
        await self._choices.run(ex, prompt, responder)
        await responder.finish()

    @contextlib.contextmanager
    def slot(self, tenant: Tenant) -> Iterator[None]:
        """One of the tenant's, for what it asks beside exchanges; raises Refused."""
        self._take(tenant)
        try:
            yield
        finally:
            self._give(tenant)

    def _take(self, tenant: Tenant) -> None:
        if self.is_draining:
            raise Refused("draining", "this replica is shutting down")
        if self.num_inflight >= self._max_inflight:
            raise Refused("queue_full", f"{self._max_inflight} requests are in flight already")
        num_own = self._num_by_tenant.get(tenant.name, 0)
        if num_own >= tenant.max_concurrency:
            raise Refused(
                "tenant_concurrency_exceeded", f"your limit is {tenant.max_concurrency} requests at a time"
            )
        self._num_by_tenant[tenant.name] = num_own + 1
        self.num_inflight += 1
        self._idle.clear()

    def _give(self, tenant: Tenant) -> None:
        self.num_inflight -= 1
        self._num_by_tenant[tenant.name] -= 1
        if not self.num_inflight:
            self._idle.set()

    async def drain(self, timeout_s: float) -> None:
        """Refuse new exchanges and wait for the running ones, at most ``timeout_s``."""
        self.is_draining = True
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            _log.error("drain timed out", extra={"num_inflight": self.num_inflight})

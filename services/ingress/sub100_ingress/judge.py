"""Near hits that the guard refused are settled afterwards, off every request's path.

The queue is bounded, one case runs at a time, and only while the fleet is quiet: a case that finds it busy,
or the queue full, is dropped, for the same question will come again if it matters. A yes makes an alias.

Who judges is a Protocol. What a judge says of one pair is final here; thresholds learned for each entry with
a stated error bound (vCache) would take the place of ``Judge`` and of the tenant's one threshold.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from msgspec import Struct

from sub100_proto.cache import CacheAlias
from sub100_shared.errors import Sub100Error

from .keys import Tenant

_log = logging.getLogger(__name__)

MAX_CASES: Final = 32
VERDICT_TIMEOUT_S: Final = 20.0
VERDICTS: Final = ("yes", "no", "error", "dropped")


class Case(Struct, frozen=True, kw_only=True):
    """Two questions of one scope: the one that missed, and the neighbour that the guard refused.

    ``context`` is all else that was said, the same for both. ``alias`` is what a yes is worth."""

    request_id: str
    tenant: Tenant
    question: str
    neighbour: str
    context: str
    alias: CacheAlias


class Judge(Protocol):
    async def same_answer(self, case: Case) -> bool:
        """Whether one answer is right for both questions; when in doubt it is not. Raises Sub100Error."""
        ...


class JudgeQueue:
    """``offer`` never waits; ``run`` is the one worker."""

    def __init__(
        self,
        judge: Judge,
        is_quiet: Callable[[], bool],
        publish: Callable[[CacheAlias], Awaitable[None]],
        *,
        max_cases: int = MAX_CASES,
        timeout_s: float = VERDICT_TIMEOUT_S,
    ) -> None:
        self._judge = judge
        self._is_quiet = is_quiet
        self._publish = publish
        self._timeout_s = timeout_s
        self._cases: asyncio.Queue[Case] = asyncio.Queue(max_cases)
        self.num_cases = dict.fromkeys(VERDICTS, 0)
        """By what became of them."""

    def offer(self, case: Case) -> None:
        """Take the case, or drop it when there are too many."""
        try:
            self._cases.put_nowait(case)
        except asyncio.QueueFull:
            self.num_cases["dropped"] += 1

    async def run(self) -> None:
        while True:
            case = await self._cases.get()
            verdict = await self._settled(case) if self._is_quiet() else "dropped"
            self.num_cases[verdict] += 1

    async def _settled(self, case: Case) -> str:
        try:
            async with asyncio.timeout(self._timeout_s):
                is_same = await self._judge.same_answer(case)
            if is_same:
                await self._publish(case.alias)
        except (Sub100Error, TimeoutError) as error:
            _log.info("not judged", extra={"request_id": case.request_id, "error": type(error).__name__})
            return "error"
        except Exception:
            _log.exception("judge failed", extra={"request_id": case.request_id})
            return "error"
        _log.info("judged", extra={"request_id": case.request_id, "is_same": is_same})
        return "yes" if is_same else "no"

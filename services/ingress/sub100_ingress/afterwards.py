"""What is done with a generated answer once its readers have it: fill, compare, judge."""

import asyncio
from collections.abc import Iterable

from sub100_proto.cache import CacheAlias, CacheMiss, CacheReply
from sub100_shared.nfc import nfc

from .cache_key import CacheKey
from .exchange import Exchange
from .judge import Case, JudgeQueue
from .lookup import CacheClient
from .material import context_of
from .tool_message import read_message


class Afterwards:
    """``judge`` None: near hits are not settled."""

    def __init__(self, cache: CacheClient, judge: JudgeQueue | None) -> None:
        self._cache = cache
        self._judge = judge

    async def generated(self, run: Exchange, key: CacheKey, reply: CacheReply) -> None:
        """``reply`` is what the look-up said while the answer was generated.

        An answer whose calls are not all whole is not kept. A hit that was not used leaves its entry as it
        is: its age goes on as it would have.
        """
        if isinstance(reply, CacheMiss):
            if await _is_clean(run):
                await self._cache.fill(run, key, reply.generation)
            self._offer(run, key, reply)
        elif run.tenant.shadow and run.finish_reason == "stop":
            await self._cache.observe(run, reply, agreed=is_same_text(reply.answer.pieces, run.pieces))

    def _offer(self, run: Exchange, key: CacheKey, miss: CacheMiss) -> None:
        near = miss.near
        if near is None or self._judge is None or not run.tenant.judge or run.finish_reason != "stop":
            return
        messages = run.request.messages
        if messages is None:
            return
        self._judge.offer(
            Case(
                request_id=run.request_id,
                tenant=run.tenant,
                question=key.question,
                neighbour=near.question,
                context=context_of(messages),
                alias=CacheAlias(
                    tenant=run.tenant.name,
                    digest=key.digest,
                    target=near.digest,
                    generation=miss.generation,
                    scope=key.scope,
                    revision=key.revision,
                ),
            )
        )


async def _is_clean(run: Exchange) -> bool:
    """Read in a thread: nobody waits for it."""
    use = run.request.calling
    if use is None:
        return True
    return (await asyncio.to_thread(read_message, use, run.pieces, run.finish_reason)).is_clean


def is_same_text(one: Iterable[str], other: Iterable[str]) -> bool:
    """Whether two answers say the same but for white space and Unicode form: the strictest useful reading."""
    return _plain(one) == _plain(other)


def _plain(pieces: Iterable[str]) -> str:
    return " ".join(nfc("".join(pieces)).split())

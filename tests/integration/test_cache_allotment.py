"""A look-up ends with its allotment, however many round trips it takes."""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import AsyncIterator

import pytest
from tests.integration.cache_service import ANSWER
from tests.patience import PATIENCE_S
from tests.servers import Server

from sub100_cache.store.commands import StoreUnavailable, open_commands
from sub100_cache.store.entries import Alias, Entry, alias_digest, encode_entry, entry_key
from sub100_cache.store.exact import ExactTier
from sub100_cache.store.generations import Generations, Question
from sub100_cache.store.log_place import Place
from sub100_cache.store.seal import Seal

DIGEST, TARGET, SCOPE = (hashlib.sha256(name).digest() for name in (b"alias", b"target", b"scope"))
TRIP_S = 0.05


@contextlib.asynccontextmanager
async def far(server: Server) -> AsyncIterator[str]:
    """The URL of a Redis each of whose answers is ``TRIP_S`` away."""
    tasks: set[asyncio.Task[None]] = set()
    writers: list[asyncio.StreamWriter] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(2**16):
                await asyncio.sleep(delay_s)
                writer.write(data)
        writer.transport.abort()

    async def on_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(server.host, server.port)
        writers.extend((writer, far_writer))
        for ends in ((reader, far_writer, 0.0), (far_reader, writer, TRIP_S)):
            tasks.add(asyncio.create_task(copy(*ends)))

    listener = await asyncio.start_server(on_client, "127.0.0.1", 0)
    try:
        yield f"redis://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def test_alias_is_not_followed_beyond_the_allotment(own_redis_server: Server, tenant: str) -> None:
    near = open_commands(own_redis_server.url, max_connections=4)
    await near.probe()
    question = Question(tenant, SCOPE)
    number = (await Generations(near, 3600).establish(question, Place(), 5)).number
    now_s = time.time()
    alias = Alias(tenant=tenant, digest=alias_digest(DIGEST), target=TARGET, scope=SCOPE, generation=number)
    entry = Entry(
        tenant=tenant,
        digest=TARGET,
        stored_at_s=now_s,
        expires_at_s=now_s + 60,
        answer=ANSWER,
        scope=SCOPE,
        generation=number,
    )
    for kept in (alias, entry):
        await near.client.set(entry_key(tenant, kept.digest), encode_entry(kept, Seal()))
    assert (await ExactTier(near, Generations(near, 3600), Seal()).get(question, DIGEST, 5)).entry == entry
    await near.close()

    async with far(own_redis_server) as url:
        commands = open_commands(url, max_connections=4)
        await commands.probe()
        exact = ExactTier(commands, Generations(commands, 3600), Seal())
        assert (await exact.get(question, DIGEST, PATIENCE_S)).entry == entry
        with pytest.raises(StoreUnavailable, match="late"):  # time for one round trip, not for two
            await exact.get(question, DIGEST, 1.6 * TRIP_S)
        await commands.close()

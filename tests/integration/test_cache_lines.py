"""The connections that look-ups use, on a real Redis."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from tests.patience import PATIENCE_S
from tests.servers import Server

from sub100_cache.store.lines import Lines


@pytest.fixture
async def redis(own_redis_server: Server) -> AsyncIterator[Redis]:
    async with Redis.from_url(own_redis_server.url, socket_timeout=None) as client:
        yield client


@pytest.fixture
async def lines(redis: Redis) -> AsyncIterator[Lines]:
    lines = Lines(redis.connection_pool)
    yield lines
    await lines.close()


async def num_connections(redis: Redis) -> int:
    return int((await redis.info("stats"))["total_connections_received"])


async def test_replies_come_in_order_with_what_was_refused_among_them(lines: Lines) -> None:
    set_, refused, got = await lines.ask([("SET", "k", "1"), ("HGET", "k", "field"), ("GET", "k")])
    assert (set_, got) == (b"OK", b"1")
    assert isinstance(refused, ResponseError)
    assert await lines.ask([("GET", "k")]) == [b"1"]


async def test_line_is_used_again_and_as_many_are_opened_as_are_needed_at_once(
    lines: Lines, redis: Redis
) -> None:
    await redis.ping()
    before = await num_connections(redis)
    for number in range(20):
        assert await lines.ask([("ECHO", str(number))]) == [str(number).encode()]
    assert await num_connections(redis) == before + 1
    replies = await asyncio.gather(*(lines.ask([("ECHO", str(number))]) for number in range(5)))
    assert replies == [[str(number).encode()] for number in range(5)]
    assert await num_connections(redis) <= before + 5


async def test_line_of_a_question_that_was_cut_short_answers_nobody_else(
    lines: Lines, own_redis_server: Server
) -> None:
    assert await lines.ask([("ECHO", "first")]) == [b"first"]
    own_redis_server.pause()
    asked = asyncio.create_task(lines.ask([("ECHO", "left")]))
    await asyncio.sleep(0)  # it is on its way
    asked.cancel()
    await asyncio.wait({asked}, timeout=PATIENCE_S)
    own_redis_server.resume()
    assert asked.cancelled()
    assert await lines.ask([("ECHO", "other")]) == [b"other"]


async def test_line_that_redis_has_closed_is_opened_anew(lines: Lines, own_redis_server: Server) -> None:
    assert await lines.ask([("ECHO", "before")]) == [b"before"]
    own_redis_server.kill()
    with pytest.raises(RedisConnectionError):
        await lines.ask([("ECHO", "away")])
    own_redis_server.start()
    assert await lines.ask([("ECHO", "after")]) == [b"after"]

"""Three Redis servers as one cluster."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from tests.servers import ChildProcess, Server, free_port, redis_answers, redis_binary, redisearch_module

NUM_NODES = 3
NUM_SLOTS = 16_384
FORM_S = 30.0


@contextlib.asynccontextmanager
async def redis_cluster(directory: Path) -> AsyncIterator[tuple[RedisCluster, list[Server]]]:
    """A client of a cluster that serves all slots, and its nodes."""
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(_node(directory / str(number))) for number in range(NUM_NODES)]
        ports = [(server.port, bus_port) for server, bus_port in started]
        nodes: list[Any] = [Redis(port=port) for port, _ in ports]
        for number, node in enumerate(nodes):
            slots = (number * NUM_SLOTS // NUM_NODES, (number + 1) * NUM_SLOTS // NUM_NODES - 1)
            await node.execute_command("CLUSTER", "ADDSLOTSRANGE", *slots)
            await node.execute_command("CLUSTER", "MEET", "127.0.0.1", *ports[0])
        async with asyncio.timeout(FORM_S):
            for node in nodes:
                while b"cluster_state:ok" not in await node.execute_command("CLUSTER", "INFO"):
                    pass
        client = RedisCluster(host="127.0.0.1", port=ports[0][0])
        try:
            yield client, [server for server, _ in started]
        finally:
            await client.aclose()
            for node in nodes:
                await node.aclose()


@contextlib.contextmanager
def _node(directory: Path) -> Iterator[tuple[Server, int]]:
    directory.mkdir()
    port, bus_port = free_port(), free_port()
    command = [
        redis_binary(),
        *("--bind", "127.0.0.1", "--port", str(port), "--dir", str(directory), "--save", ""),
        *("--cluster-enabled", "yes", "--cluster-port", str(bus_port)),
        *(("--loadmodule", module) if (module := redisearch_module()) else ()),
    ]
    server = Server(ChildProcess(command, directory / "log"), "redis", "127.0.0.1", port, redis_answers)
    try:
        server.start()
        yield server, bus_port
    finally:
        server.close()

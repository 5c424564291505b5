"""The vector index over the nodes that hold it: one of a single Redis, a part on each primary of a cluster.

A tenant's keys lie in one slot, so that its neighbours are all in the part of one node, and a search goes
there and nowhere else. The query engine takes an index's name for a key: a node refuses a name whose slot it
does not serve. So each part has a name of its own, with the smallest number in braces whose slot lies on that
node. Where the engine itself spreads an index over the nodes (its coordinator does), there is one name.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from redis.asyncio.cluster import RedisCluster
from redis.commands.search import AsyncSearch
from redis.exceptions import SlotNotCoveredError

from .commands import WRITE_TIMEOUT_S, Commands

_MAX_TAGS: Final = 16_384


class Parts:
    """Ask ``refresh`` first: until then there is no part in a cluster."""

    def __init__(self, commands: Commands, name: str) -> None:
        self._commands = commands
        self._name = name
        self._by_node: Mapping[str, AsyncSearch] = {}
        self._whole: AsyncSearch | None = None if self._cluster else _part(commands.client, name)

    @property
    def _cluster(self) -> Any:
        client: Any = self._commands.client
        return client if isinstance(client, RedisCluster) else None

    def of(self, key: str) -> AsyncSearch | None:
        """The part that indexes ``key``; None: the cluster has changed, or was never asked."""
        if self._whole is not None:
            return self._whole
        try:
            return self._by_node.get(self._cluster.get_node_from_key(key).name)
        except SlotNotCoveredError:
            return None

    async def ask(self, part: AsyncSearch, command: Sequence[Any], timeout_s: float) -> Any:
        """The reply of the node of ``part``. Raises StoreUnavailable, and ResponseError."""
        if self._whole is None:
            return await self._commands.run(part.execute_command(*command), timeout_s)
        (reply,) = await self._commands.ask([command], timeout_s)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def refresh(self) -> list[AsyncSearch]:
        """All parts, as the cluster is now. Raises StoreUnavailable."""
        if self._whole is not None:
            return [self._whole]
        cluster = self._cluster
        await self._commands.run(_initialized(cluster), WRITE_TIMEOUT_S)
        missing = {node.name for node in cluster.get_primaries()}
        found: dict[str, AsyncSearch] = {}
        for number in range(_MAX_TAGS):
            if not missing:
                break
            tag = f"{{{number}}}"
            node = cluster.get_node_from_key(tag)
            if node.name in missing:
                missing.discard(node.name)
                found[node.name] = _part(_Node(cluster, node), f"{self._name}:{tag}")
        self._by_node = found
        return list(found.values())

    async def is_spread(self, one: AsyncSearch, other: AsyncSearch) -> bool:
        """Whether the node of ``other`` has the index that was made on that of ``one``. Raises
        StoreUnavailable."""
        names = await self._commands.run(other.execute_command("FT._LIST"), WRITE_TIMEOUT_S)
        return one.index_name.encode() in names

    def share(self, one: AsyncSearch) -> None:
        """Every node is asked for the index of ``one``."""
        nodes = {node.name: node for node in self._cluster.get_primaries()}
        self._by_node = {
            name: _part(_Node(self._cluster, node), one.index_name) for name, node in nodes.items()
        }


class _Node:
    """One node of a cluster, as the search commands want a client."""

    def __init__(self, cluster: Any, node: Any) -> None:
        self._cluster = cluster
        self._node = node
        self.pipeline = cluster.pipeline

    def execute_command(self, *args: Any, **options: Any) -> Any:
        return self._cluster.execute_command(*args, target_nodes=self._node, **options)


def _part(client: Any, name: str) -> AsyncSearch:
    return AsyncSearch(client, index_name=name)  # type: ignore[no-untyped-call]


async def _initialized(cluster: Any) -> None:
    await cluster.initialize()

"""The threads that pull: a few for each peer, so that one that hangs holds up nobody else's KV."""

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from sub100_proto.kv import KvHandle

THREADS_A_PEER: Final = 2
MAX_PEERS: Final = 32


class PullThreads:
    """``submit`` until ``close``, from one thread. Of more than MAX_PEERS the one that was used longest ago
    loses its threads when they have done what they were given."""

    def __init__(self) -> None:
        self._by_peer: OrderedDict[str, ThreadPoolExecutor] = OrderedDict()

    def submit(self, peer: KvHandle, task: Callable[[], object]) -> Future[object]:
        """``peer``: a handle of its."""
        name = peer.endpoint or peer.shm
        threads = self._by_peer.get(name)
        if threads is None:
            threads = ThreadPoolExecutor(THREADS_A_PEER, thread_name_prefix="kv-pull")
            self._by_peer[name] = threads
            if len(self._by_peer) > MAX_PEERS:
                self._by_peer.popitem(last=False)[1].shutdown(wait=False)
        self._by_peer.move_to_end(name)
        return threads.submit(task)

    def close(self) -> None:
        """What has not begun never will."""
        for threads in self._by_peer.values():
            threads.shutdown(wait=False, cancel_futures=True)

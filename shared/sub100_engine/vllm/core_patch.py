"""Lets vLLM's engine core sleep while all it has to do is hold, or wait for, handed-over KV.

vLLM steps about 700 times a second then, at a fifth of a core, to ask the connector for news. The connector
knows when there is news, so the core waits for that or for input; the time-out is for leases that end. The
core's step is replaced for the version that ``runner_patch`` is for.
"""

import queue
import threading
import time
from typing import Any, Final

from vllm.v1.engine.core import EngineCoreProc
from vllm.v1.request import RequestStatus

_WAIT_S: Final = 0.02
_POLL_S: Final = 0.001
"""vLLM's own pace, where something else than KV may be awaited."""


class Patience:
    """Waiting for input or for ``wake``, whichever is first. One thread waits."""

    def __init__(self) -> None:
        self._news = threading.Event()
        self._condition: threading.Condition | None = None

    def wake(self) -> None:
        """Thread-safe. Holds for the next wait too."""
        self._news.set()
        if self._condition is not None:
            with self._condition:
                self._condition.notify_all()

    def wait(self, inputs: "queue.Queue[Any]", timeout_s: float) -> None:
        with inputs.not_empty:
            self._condition = inputs.not_empty
            if not inputs.queue and not self._news.is_set():
                inputs.not_empty.wait(timeout_s)
            self._news.clear()


patience: Final = Patience()


def install() -> None:
    EngineCoreProc._process_engine_step = _process_engine_step


def _process_engine_step(core: Any) -> bool:
    """``EngineCoreProc._process_engine_step`` with another wait at its end."""
    outputs, is_executed = core.step_fn()
    for output in outputs.items() if outputs else ():
        core.output_queue.put_nowait(output)
    core.post_step(is_executed)
    if not is_executed and core.scheduler.has_requests():
        if is_waiting_for_kv_alone(core.scheduler) and not core.batch_queue:
            patience.wait(core.input_queue, _WAIT_S)
        else:
            time.sleep(_POLL_S)
    return bool(is_executed)


def is_waiting_for_kv_alone(scheduler: Any) -> bool:
    """Whether another step could change nothing before a transfer or a lease ends."""
    if (
        scheduler.finished_req_ids
        or scheduler.finished_recving_kv_req_ids
        or scheduler.failed_recving_kv_req_ids
    ):
        return False
    return all(
        request.status == RequestStatus.WAITING_FOR_REMOTE_KVS or RequestStatus.is_finished(request.status)
        for request in scheduler.requests.values()
    )

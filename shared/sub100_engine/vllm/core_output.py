"""What the engine core writes to stderr, turned into our log lines.

A core speaks in many tongues (vLLM's loggers, Python's warnings, C++), some before any configuration could
reach it, and it inherits our stderr. So it is given a pipe instead: for the moment of its spawn our own
descriptor 2 is that pipe, and what we write ourselves meanwhile passes through unchanged.
"""

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable
from multiprocessing import resource_tracker
from typing import Final

_log = logging.getLogger(__name__)

_STDERR: Final = 2
_MAX_LINE_BYTES: Final = 16_384
_POLL_S: Final = 0.01


@contextlib.asynccontextmanager
async def captured(is_spawned: Callable[[], bool]) -> AsyncIterator[None]:
    """Inside, the next child gets the pipe; it goes on after the exit, until the child is gone.

    Our stderr is itself again as soon as ``is_spawned``, at the latest at the exit.
    """
    resource_tracker.ensure_running()  # it would inherit the pipe and outlive the child
    ours = os.dup(_STDERR)
    reader, writer = os.pipe()
    os.dup2(writer, _STDERR, inheritable=True)
    os.close(writer)
    relay = threading.Thread(target=_relay, args=(reader, ours), name="core-stderr", daemon=True)
    relay.start()
    restoring = asyncio.create_task(_restore(is_spawned, ours), name="restore-stderr")
    try:
        yield
    finally:
        restoring.cancel()
        await asyncio.wait([restoring])


async def _restore(is_spawned: Callable[[], bool], ours: int) -> None:
    try:
        while not is_spawned():  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
    finally:
        os.dup2(ours, _STDERR, inheritable=True)


def _relay(reader: int, ours: int) -> None:
    """Ends when nobody holds the other end any more: our descriptor is restored and the child is gone."""
    with os.fdopen(reader, "rb") as lines:
        while line := lines.readline(_MAX_LINE_BYTES):
            if line.startswith(b'{"'):
                os.write(ours, line)
            elif line.strip():
                text = line.decode("utf-8", "replace").strip()
                _log.info("engine_core_said", extra={"line": text})
    os.close(ours)

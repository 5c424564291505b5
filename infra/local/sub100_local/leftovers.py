"""Processes that outlived their run: found by the run's mark in their environment, never by pid or name.

A killed worker may leave an engine process behind, a killed runner everything. vLLM's processes overwrite
their environment with a title, so a session id counts too, but for those titles only.
"""

import os
import signal
import time
from pathlib import Path
from typing import Final

from .runner import RUN_VARIABLE

TIMEOUT_S: Final = 5.0
_TITLE: Final = b"VLLM::"
_PROC: Final = Path("/proc")


def find(run_id: str, session: int) -> list[int]:
    """Pids of our own user that belong to the run; never this process."""
    found = []
    for entry in _PROC.iterdir() if _PROC.is_dir() else ():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            if entry.stat().st_uid == os.getuid() and _belongs(entry, run_id, session):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def kill(run_id: str, session: int) -> int:
    """Kill what is left of a run; returns how many processes that were. Bounded."""
    num_killed = 0
    deadline = time.monotonic() + TIMEOUT_S
    while (found := find(run_id, session)) and time.monotonic() < deadline:
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            num_killed += 1
        time.sleep(0.1)
    return num_killed


def _belongs(entry: Path, run_id: str, session: int) -> bool:
    fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
    if fields[0] == b"Z":
        return False
    if f"{RUN_VARIABLE}={run_id}".encode() in (entry / "environ").read_bytes().split(b"\0"):
        return True
    is_in_session = session > 0 and int(fields[3]) == session
    return is_in_session and (entry / "cmdline").read_bytes().startswith(_TITLE)

"""The process runner: an adapter to supervisor's XML-RPC interface on its unix socket.

Calls are short and answered by a local process, so they are plain blocking calls.
"""

import http.client
import os
import signal
import subprocess
import sys
import time
import xmlrpc.client
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import msgspec
from supervisor.xmlrpc import Faults, SupervisorTransport

from sub100_bootstrap.failure import Failure

from .directories import Directories

START_TIMEOUT_S: Final = 15.0
POLL_S: Final = 0.1
RUN_VARIABLE: Final = "SUB100_RUN"
"""Marks every process of a run, so that one that outlived its parent can be told from others."""


class ProcessInfo(msgspec.Struct, frozen=True):
    """``state`` is supervisor's: STARTING, RUNNING, BACKOFF, STOPPING, EXITED, FATAL, STOPPED."""

    name: str
    state: str
    pid: int
    start: int
    now: int
    spawn_error: str
    exit_status: int

    @property
    def is_up(self) -> bool:
        return self.state in ("STARTING", "RUNNING", "BACKOFF", "STOPPING")


class NotRunning(Exception):
    """No runner answers on this socket."""


class Runner:
    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def is_running(self) -> bool:
        try:
            self._call("getState")
        except NotRunning:
            return False
        return True

    def pid(self) -> int:
        return int(self._call("getPID"))

    def processes(self) -> list[ProcessInfo]:
        return [
            ProcessInfo(
                name=item["name"],
                state=item["statename"],
                pid=item["pid"],
                start=item["start"],
                now=item["now"],
                spawn_error=item["spawnerr"],
                exit_status=item["exitstatus"],
            )
            for item in self._call("getAllProcessInfo")
        ]

    def add(self, names: Iterable[str]) -> None:
        """Start programs whose files have just been written."""
        self._call("reloadConfig")
        for name in names:
            self._call("addProcessGroup", name)

    def forget(self, names: Iterable[str]) -> None:
        """Drop stopped programs whose files are gone."""
        self._call("reloadConfig")
        for name in names:
            self._call("removeProcessGroup", name)

    def stop(self, names: Iterable[str], timeout_s: float) -> list[str]:
        """SIGTERM to all at once, then wait; returns those that are still there after ``timeout_s``.

        The runner itself kills who overstays its ``stop_wait_s``.
        """
        waiting = set(names)
        for name in waiting:
            try:
                self._call("stopProcess", name, False)
            except xmlrpc.client.Fault as fault:
                if fault.faultCode not in (Faults.NOT_RUNNING, Faults.BAD_NAME):
                    raise
        deadline = time.monotonic() + timeout_s
        while True:
            alive = {info.name for info in self.processes() if info.is_up}
            waiting &= alive
            if not waiting or time.monotonic() > deadline:
                return sorted(waiting)
            time.sleep(POLL_S)

    def shutdown(self, timeout_s: float) -> None:
        """End the runner with what still runs under it; when it does not end in time, kill it."""
        try:
            pid = self.pid()
            self._call("shutdown")
        except (NotRunning, xmlrpc.client.Fault):
            return
        if not _wait_gone(pid, timeout_s):
            os.kill(pid, signal.SIGKILL)
            _wait_gone(pid, 5)

    def _call(self, method: str, *arguments: object) -> Any:
        transport = SupervisorTransport(serverurl=f"unix://{self._socket}")
        proxy = xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport)
        try:
            return getattr(proxy.supervisor, method)(*arguments)
        except (OSError, http.client.HTTPException, xmlrpc.client.ProtocolError) as error:
            raise NotRunning(str(error)) from error
        finally:
            transport.close()


def start(
    directories: Directories, run_id: str, *, preexec: Callable[[], None] | None
) -> subprocess.Popen[bytes]:
    """Start supervisord in a session of its own, so that Ctrl-C reaches us alone; returns when it answers.

    ``preexec`` runs in the child: the foreground run ties the runner to itself with it.
    """
    log = directories.logs / "runner.log"
    with log.open("wb") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "supervisor.supervisord", "-c", str(directories.supervisor_config)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=preexec,
            env={**os.environ, RUN_VARIABLE: run_id, "TMPDIR": str(directories.temporary)},
        )
    runner = Runner(directories.socket)
    deadline = time.monotonic() + START_TIMEOUT_S
    while not runner.is_running():
        if child.poll() is not None or time.monotonic() > deadline:
            child.kill()
            child.wait()
            last = log.read_text(errors="replace").strip().splitlines()[-1:] or ["no reason given"]
            raise Failure(f"the process runner did not start: {last[0]}")
        time.sleep(POLL_S)
    return child


def _wait_gone(pid: int, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if not _is_alive(pid):
            return True
        time.sleep(POLL_S)
    return False


def _is_alive(pid: int) -> bool:
    """A zombie counts as gone: its parent, we or init, will collect it."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"

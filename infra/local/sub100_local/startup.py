"""Waiting for a stack: a line for each program that becomes ready, an error for the first that gives up."""

import http.client
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from sub100_bootstrap.failure import Failure

from . import ports
from .fleet_watch import FleetWatch
from .programs import log_path
from .runner import ProcessInfo, Runner

POLL_S: Final = 0.25
REMIND_S: Final = 15.0
NUM_TAIL_LINES: Final = 12
MAX_LINE: Final = 400

Say = Callable[[str], None]


class GaveUp(Failure):
    """A program exits again and again; the message ends with the last lines of its log."""


def check_alive(processes: Iterable[ProcessInfo], logs: Path) -> None:
    """Raises GaveUp for a program that the runner does not restart any more."""
    for info in processes:
        if info.state == "FATAL":
            raise GaveUp(f"{info.name} does not start: {info.spawn_error}\n{tail(logs, info.name)}")


async def wait_ready(
    runner: Runner, watch: FleetWatch, names: list[str], logs: Path, say: Say, timeout_s: float
) -> None:
    """Return when every one of ``names`` says that it is ready; raises Failure."""
    began = time.monotonic()
    waiting = list(names)
    reminded = began
    while waiting:
        for name in sorted(watch.ready(waiting), key=waiting.index):
            waiting.remove(name)
            say(f"{name} ready ({time.monotonic() - began:.0f} s)")
        if not waiting:
            return
        check_alive(runner.processes(), logs)
        now = time.monotonic()
        if now - began > timeout_s:
            raise Failure(f"{', '.join(waiting)} not ready after {timeout_s:.0f} s\n{tail(logs, waiting[0])}")
        if now - reminded > REMIND_S:
            reminded = now
            say(f"waiting for {', '.join(_describe(watch, name) for name in waiting)} ({now - began:.0f} s)")
        await watch.wait_change(POLL_S)


async def wait_serving(watch: FleetWatch, ingress_ports: Iterable[int], timeout_s: float) -> None:
    """Return when every ingress answers 200 on ``/readyz``; raises Failure."""
    deadline = time.monotonic() + timeout_s
    for port in ingress_ports:
        while (status := _readyz(port)) != 200:
            if time.monotonic() > deadline:
                raise Failure(
                    f"ingress on port {port} is not ready after {timeout_s:.0f} s (/readyz: {status})"
                )
            await watch.wait_change(POLL_S)


def tail(logs: Path, name: str) -> str:
    """The last lines of a program's log, as text for people, and where the rest is."""
    path = log_path(logs, name)
    if not path.exists():
        return f"(no log at {path})"
    lines = path.read_text(errors="replace").splitlines()[-NUM_TAIL_LINES:]
    return "\n".join([f"the end of {path}:", *(f"    {_readable(line)[:MAX_LINE]}" for line in lines)])


def _readable(line: str) -> str:
    """A JSON log line's event and fields; any other line as it is."""
    try:
        fields = msgspec.json.decode(line, type=dict[str, object])
    except msgspec.MsgspecError:
        return line
    rest = {k: v for k, v in fields.items() if k not in ("time", "level", "service", "instance", "event")}
    exception = str(rest.pop("exception", "")).strip().rpartition("\n")[2]
    text = " ".join(f"{key}={json.dumps(value)}" for key, value in rest.items())
    return " ".join(part for part in (str(fields.get("event", "")), text, exception) if part)


def _describe(watch: FleetWatch, name: str) -> str:
    word = watch.word(name)
    return name if word is None else f"{name} ({word.detail or word.state})"


def _readyz(port: int) -> int:
    """HTTP status; 0 if nobody answers."""
    connection = http.client.HTTPConnection(ports.HOST, port, timeout=2)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()

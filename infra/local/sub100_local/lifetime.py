"""From nothing to a running stack and back to nothing. The order of stopping is the waves' (see stack)."""

import contextlib
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable
from typing import Final

import msgspec

from sub100_bootstrap.failure import Failure

from . import credentials, leftovers, private_files, runner, stack
from .directories import Directories
from .options import SERVICES, Options
from .programs import Program, supervisor_config
from .runner import NotRunning, Runner
from .stack import Stack

Say = Callable[[str], None]
STOP_TIMEOUT_S: Final = stack.STOP_WAIT_S + 10.0
SHUTDOWN_TIMEOUT_S: Final = 20.0


class Saved(msgspec.Struct, frozen=True):
    """The file beside a run: what it is, and the runner's session (0 before it started), by which its
    processes can be found if the runner died."""

    stack: Stack
    session: int


def start(
    directories: Directories,
    chosen: Stack,
    options: Options,
    key: str,
    preexec: Callable[[], None] | None,
) -> list[str]:
    """Start servers and services; returns the services' names. The run directory must be fresh."""
    secrets_directory = directories.secrets
    credentials.write_keys_file(secrets_directory / "keys.json", key)
    private_files.write(secrets_directory / "redis.conf", chosen.redis_config().encode())
    private_files.write(
        directories.supervisor_config, supervisor_config(directories.run, directories.logs).encode()
    )
    programs: list[Program] = chosen.server_programs()
    for service in SERVICES:
        count = options.replicas.get(service, 1)
        programs += [chosen.service_program(service, index + 1) for index in range(count)]
    for program in programs:
        program.write(directories.programs, directories.logs)
    save(directories, Saved(chosen, 0))
    child = runner.start(directories, chosen.run_id, preexec=preexec)
    save(directories, Saved(chosen, child.pid))
    return [program.name for program in programs if program.service in SERVICES]


def stop(directories: Directories, say: Say) -> None:
    """Drain wave by wave, end the runner, remove what is left; safe when anything of it is gone already."""
    control = Runner(directories.socket)
    began = time.monotonic()
    try:
        names = [info.name for info in control.processes()]
        for wave in stack.waves_of_stop(names):
            say(f"draining {', '.join(wave)}")
            late = control.stop(wave, STOP_TIMEOUT_S)
            if late:
                say(f"{', '.join(late)} did not stop in time")
    except NotRunning:
        pass
    control.shutdown(SHUTDOWN_TIMEOUT_S)
    clean_up(directories, say)
    say(f"stopped in {time.monotonic() - began:.0f} s; logs are kept in {directories.logs}")


def clean_up(directories: Directories, say: Say) -> None:
    """Kill what outlived its runner and remove the run directory. Only when no runner answers."""
    saved = load(directories)
    if saved is not None:
        num_killed = leftovers.kill(saved.stack.run_id, saved.session)
        if num_killed:
            say(f"killed {num_killed} processes that had outlived their run")
    directories.remove_run()


def abandon(directories: Directories, say: Say) -> None:
    """Kill everything at once."""
    saved = load(directories)
    if saved is not None and saved.session:
        with contextlib.suppress(ProcessLookupError, NotRunning):
            os.kill(Runner(directories.socket).pid(), signal.SIGKILL)
    clean_up(directories, say)


def save(directories: Directories, saved: Saved) -> None:
    private_files.write(directories.stack_file, msgspec.json.encode(saved))


def load(directories: Directories) -> Saved | None:
    """None if there is no run, or nothing readable of one."""
    try:
        return msgspec.json.decode(directories.stack_file.read_bytes(), type=Saved)
    except (OSError, msgspec.MsgspecError):
        return None


def demand_running(directories: Directories) -> Saved:
    saved = load(directories)
    if saved is None or not Runner(directories.socket).is_running():
        raise Failure("nothing is running from this checkout: start it with 'make up' or 'make run'")
    return saved


def new_run_id() -> str:
    return secrets.token_hex(16)


def stderr(text: str) -> None:
    sys.stderr.write(f"[sub100] {text}\n")
    sys.stderr.flush()

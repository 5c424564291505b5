"""A program of the stack, and how the process runner (supervisor) is told of it: one file each.

A replica is a program of its own, so that adding or removing one touches nothing else.
"""

import json
import shlex
import sys
from pathlib import Path
from typing import Final

import msgspec

from . import launch, private_files

MAX_LOG_BYTES: Final = 20 * 2**20


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """``wave`` orders start (rising) and stop (falling); programs of one wave start and stop together.

    ``settle_s``: an exit sooner than this after the start counts as a failed start, of which ``retries``
    are allowed. ``stop_wait_s``: SIGTERM asks for a drain; who takes longer is killed, children too.
    """

    name: str
    service: str
    wave: int
    command: tuple[str, ...]
    environment: dict[str, str]
    nice: int = 0
    settle_s: int = 5
    retries: int = 3
    stop_wait_s: int = 10

    def write(self, programs: Path, logs: Path) -> None:
        """The spec that launch.py reads, then the runner's section that refers to it."""
        spec = programs / f"{self.name}.json"
        content = {"command": self.command, "environment": self.environment, "nice": self.nice}
        private_files.write(spec, json.dumps(content).encode())
        private_files.write(programs / f"{self.name}.conf", self._section(spec, logs).encode())

    def _section(self, spec: Path, logs: Path) -> str:
        command = shlex.join([sys.executable, "-I", "-S", str(Path(launch.__file__)), str(spec)])
        return f"""\
[program:{self.name}]
command={_escape(command)}
priority={self.wave}
autorestart=true
startsecs={self.settle_s}
startretries={self.retries}
stopsignal=TERM
stopwaitsecs={self.stop_wait_s}
stopasgroup=false
killasgroup=true
redirect_stderr=true
stdout_logfile={_escape(str(log_path(logs, self.name)))}
stdout_logfile_maxbytes={MAX_LOG_BYTES}
stdout_logfile_backups=1
"""


def remove(programs: Path, name: str) -> None:
    for suffix in (".conf", ".json"):
        (programs / f"{name}{suffix}").unlink(missing_ok=True)


def log_path(logs: Path, name: str) -> Path:
    return logs / f"{name}.log"


def supervisor_config(directory: Path, logs: Path) -> str:
    """The runner's own configuration; its control socket is the owner's alone."""
    at = _escape(str(directory))
    return f"""\
[supervisord]
nodaemon=true
silent=true
logfile={_escape(str(log_path(logs, "supervisord")))}
logfile_maxbytes={MAX_LOG_BYTES}
logfile_backups=0
pidfile={at}/supervisord.pid
childlogdir={_escape(str(logs))}
directory={at}
umask=077

[unix_http_server]
file={at}/supervisord.sock
chmod=0600

[rpcinterface:supervisor]
supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface

[include]
files={at}/programs/*.conf
"""


def _escape(value: str) -> str:
    """``%(name)s`` is the runner's own syntax."""
    return value.replace("%", "%%")

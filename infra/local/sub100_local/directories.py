"""The directories of one checkout's stack: one for the run, gone with it, and one for its logs."""

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sub100_bootstrap.failure import Failure
from sub100_bootstrap.places import ROOT, cache_directory

from . import private_files

_MAX_TEMPORARY_PATH: Final = 60
"""Linux allows 107 bytes for a socket; engines append a directory and a 36-character name."""


@dataclass(frozen=True)
class Directories:
    """``run`` exists exactly while a stack runs or a crashed one has not been cleaned up."""

    cache: Path
    run: Path
    logs: Path

    @property
    def socket(self) -> Path:
        return self.run / "supervisord.sock"

    @property
    def temporary(self) -> Path:
        return self.run / "tmp"

    @property
    def programs(self) -> Path:
        return self.run / "programs"

    @property
    def secrets(self) -> Path:
        return self.run / "secrets"

    @property
    def stack_file(self) -> Path:
        return self.run / "stack.json"

    @property
    def supervisor_config(self) -> Path:
        return self.run / "supervisord.conf"

    @property
    def lock(self) -> Path:
        """Outside ``run``, which comes and goes."""
        return self.logs / "lock"

    def create(self) -> None:
        """Make the run directory anew, and the logs of the last run go."""
        for path in (self.run, self.temporary, self.programs, self.secrets, self.logs):
            private_files.directory(path)
        for log in self.logs.glob("*.log*"):
            log.unlink(missing_ok=True)

    def remove_run(self) -> None:
        shutil.rmtree(self.run, ignore_errors=True)


def of_checkout(checkout: Path = ROOT) -> Directories:
    """Two checkouts never share a run, nor do two users. Raises Failure if the path is too long for sockets.

    The run lies under the system's temporary directory: engines bind sockets there, and a socket's path
    must be short. It is the programs' own TMPDIR too, so that what they leave goes with the run.
    """
    cache = cache_directory()
    key = hashlib.sha256(f"{os.getuid()}:{checkout}".encode()).hexdigest()[:12]
    base = Path(tempfile.gettempdir()).resolve()
    directories = Directories(cache=cache, run=base / f"sub100-{key}", logs=cache / "log" / f"stack-{key}")
    if len(os.fsencode(directories.temporary)) > _MAX_TEMPORARY_PATH:
        raise Failure(f"{base} is too long a path for sockets: set TMPDIR to a shorter one")
    return directories

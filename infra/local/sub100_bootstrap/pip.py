"""pip, as a subprocess of one environment: quiet on the screen, complete in a log file."""

import os
import subprocess
from pathlib import Path

from .failure import Failure

TIMEOUT_S = 3600.0
_UNREACHABLE = (
    "Temporary failure in name resolution",
    "NewConnectionError",
    "ConnectTimeoutError",
    "Max retries exceeded",
    "ProxyError",
    "Network is unreachable",
)


class Pip:
    """``python -m pip`` with the user's own pip configuration."""

    def __init__(self, python: Path, log: Path) -> None:
        self._python = python
        self._log = log

    def run(self, what: str, *arguments: str) -> None:
        """Raises Failure naming ``what`` and the log."""
        if self.try_run(*arguments) != 0:
            raise Failure(f"{what}: {self._reason()} (all of it: {self._log})")

    def try_run(self, *arguments: str) -> int:
        command = [str(self._python), "-m", "pip", "--no-input", "--disable-pip-version-check", *arguments]
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("a") as log:
            log.write(f"\n$ {' '.join(command)}\n")
            log.flush()
            try:
                return subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    timeout=TIMEOUT_S,
                    check=False,
                    env={**os.environ, "PYTHONNOUSERSITE": "1"},
                ).returncode
            except subprocess.TimeoutExpired:
                log.write(f"\ngave up after {TIMEOUT_S:.0f} s\n")
                return 1

    def _reason(self) -> str:
        tail = self._log.read_text(errors="replace").rpartition("\n$ ")[2]
        if any(sign in tail for sign in _UNREACHABLE):
            return "the package index cannot be reached; check the network and pip's configuration"
        errors = [line.strip() for line in tail.splitlines() if line.lower().startswith("error")]
        return errors[-1].removeprefix("ERROR: ") if errors else "pip failed"

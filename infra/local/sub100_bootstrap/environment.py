"""One environment per lock file and Python version, in the user's cache directory.

A virtual environment holds its own path, so it cannot be made elsewhere and moved into place. A marker is
written last instead: without it a directory is the rest of an interrupted install and is made anew. A lock
beside it keeps two runs from installing the same environment at once.
"""

import hashlib
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from . import checks
from .exclusion import exclusive
from .failure import Failure
from .pip import Pip

Say = Callable[[str], None]
Step = Callable[[Pip, Say], None]
_MARKER: Final = ".complete"
UNUSED_DAYS: Final = 30


@dataclass(frozen=True)
class Recipe:
    """``before`` and ``after`` run around the install of the lock; ``revision`` rises with their changes."""

    name: str
    lock: Path
    disk_gib: float
    revision: int = 1
    before: tuple[Step, ...] = ()
    after: tuple[Callable[[Path], None], ...] = ()
    options: tuple[str, ...] = ()

    def key(self) -> str:
        """Equal for equal content: lock, Python and the recipe's own steps."""
        python = f"{platform.python_implementation()}-{platform.python_version()}-{platform.machine()}"
        content = self.lock.read_bytes() + f"\n{python}\n{self.revision}".encode()
        return f"{self.name}-{hashlib.sha256(content).hexdigest()[:12]}"


@dataclass(frozen=True)
class Environment:
    directory: Path

    @property
    def python(self) -> Path:
        return self.directory / "bin" / "python"

    @property
    def is_complete(self) -> bool:
        return (self.directory / _MARKER).exists() and self.python.exists()


def ensure(recipe: Recipe, cache: Path, say: Say) -> Environment:
    """The recipe's environment, installed if it is not there yet; raises Failure."""
    environment = Environment(cache / recipe.key())
    if environment.is_complete:
        (environment.directory / _MARKER).touch()
        return environment

    def on_wait() -> None:
        say(f"{recipe.name}: another run is installing it; waiting")

    with exclusive(cache / f"{recipe.key()}.lock", on_wait):
        if not environment.is_complete:
            _install(recipe, environment, cache, say)
            _prune(recipe, cache, say)
    return environment


def _install(recipe: Recipe, environment: Environment, cache: Path, say: Say) -> None:
    checks.python_version()
    checks.venv_module()
    checks.disk(cache, recipe.disk_gib)
    if environment.directory.exists():
        say(f"{recipe.name}: a half-finished install is made anew")
        shutil.rmtree(environment.directory)
    began = time.monotonic()
    say(f"{recipe.name}: installing into {environment.directory}")
    log = cache / "log" / f"install-{recipe.key()}.log"
    log.unlink(missing_ok=True)
    _create(environment.directory)
    pip = Pip(environment.python, log)
    for step in recipe.before:
        step(pip, lambda text: say(f"{recipe.name}: {text}"))
    num = sum(1 for line in recipe.lock.read_text().splitlines() if line and line[0].isalnum())
    say(f"{recipe.name}: {num} locked packages (log: {log})")
    pip.run(f"{recipe.name} packages", "install", "--require-hashes", "-r", str(recipe.lock), *recipe.options)
    for finish in recipe.after:
        finish(environment.directory)
    (environment.directory / _MARKER).touch()
    say(f"{recipe.name}: installed in {time.monotonic() - began:.0f} s")


def _prune(recipe: Recipe, cache: Path, say: Say) -> None:
    """Environments of old locks would fill the disk: those that no run has used for a month go."""
    oldest = time.time() - UNUSED_DAYS * 86_400
    for marker in cache.glob(f"{recipe.name}-*/{_MARKER}"):
        if marker.stat().st_mtime < oldest:
            say(f"{recipe.name}: removing {marker.parent}, unused for {UNUSED_DAYS} days")
            shutil.rmtree(marker.parent, ignore_errors=True)


def _create(directory: Path) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "venv", str(directory)], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        last = (made.stderr or made.stdout).strip().splitlines()[-1:] or ["no reason given"]
        raise Failure(f"cannot make an environment in {directory}: {last[0]}")

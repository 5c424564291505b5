"""What must be there before anything is installed or started; each miss is one line."""

import ctypes
import importlib.util
import shutil
import sys
from pathlib import Path
from typing import Final

from .failure import Failure

GIB: Final = 2**30
PYTHON: Final = (3, 11)


def python_version() -> None:
    """The locks hold for one minor version of Python."""
    if sys.version_info[:2] != PYTHON:
        found = ".".join(map(str, sys.version_info[:3]))
        raise Failure(f"Python 3.11 is needed, this is {found}: install python3.11 or set PYTHON=/path/to/it")


def venv_module() -> None:
    """Debian splits ``ensurepip`` off into a package of its own."""
    if any(importlib.util.find_spec(name) is None for name in ("venv", "ensurepip")):
        raise Failure("this Python cannot make environments: install python3-venv (Debian, Ubuntu) and retry")


def tool(name: str, package: str) -> None:
    if shutil.which(name) is None:
        raise Failure(f"{name} is missing: install {package} and retry")


def shared_library(name: str, package: str) -> None:
    """A shared library that a wheel needs and does not bring."""
    try:
        ctypes.CDLL(name)
    except OSError as error:
        raise Failure(
            f"{name} is missing: install {package} (Debian, Ubuntu) and retry, or use ENGINE=sim"
        ) from error


def disk(directory: Path, needed_gib: float) -> None:
    """``directory`` or its nearest existing parent has ``needed_gib`` free."""
    existing = next(place for place in (directory, *directory.parents) if place.exists())
    free_gib = shutil.disk_usage(existing).free / GIB
    if free_gib < needed_gib:
        raise Failure(
            f"{directory} needs {needed_gib:.1f} GiB of disk, {free_gib:.1f} GiB are free: make room, "
            "or set XDG_CACHE_HOME to a place with more"
        )


def memory(needed_gib: float, purpose: str, meminfo: Path = Path("/proc/meminfo")) -> None:
    """Linux's own estimate of what can be had without swapping; elsewhere nothing is checked."""
    if not meminfo.exists():
        return
    fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
    available_gib = int(fields.get("MemAvailable", "0").split()[0]) * 1024 / GIB
    if available_gib < needed_gib:
        raise Failure(
            f"{purpose} needs about {needed_gib:.1f} GiB of memory, {available_gib:.1f} GiB are available: "
            "close something, or try ENGINE=sim"
        )

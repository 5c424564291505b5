"""Where things are: the checkout, and what lies outside it in the user's cache directory."""

import os
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
"""The checkout."""

SOURCE_DIRECTORIES: Final = (
    "proto",
    "shared",
    "services/ingress",
    "services/cache",
    "services/scheduler",
    "services/prefill",
    "services/decode",
    "services/traces",
    "infra/local",
)
"""The import roots: the project is used from the checkout, so that clones share their environments."""


def cache_directory() -> Path:
    """Shared by all checkouts of a user; holds environments, models and logs."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base).expanduser().resolve() / "sub100"


def python_path() -> str:
    """``PYTHONPATH`` of every program of the project."""
    return os.pathsep.join(str(ROOT / directory) for directory in SOURCE_DIRECTORIES)

"""A private directory per engine for sockets and keys, swept when its owner has died.

The owner holds a lock on a file in it; the kernel drops the lock with the process, however it ends, so a
directory whose lock can be had is nobody's. No pid is compared: pids are reused and differ by namespace.
"""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

PREFIX: Final = "sub100-vllm-"
MAX_BASE_LENGTH: Final = 107 - len(f"/{PREFIX}12345678/{'u' * 36}")
"""Unix socket names have 107 characters; vLLM names its own by a UUID."""

_LOCK: Final = "lock"


class RuntimeDir:
    """``create`` -> ``path`` (mode 0700) -> ``remove``; ``remove`` is idempotent."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def create(cls, base: str = "") -> "RuntimeDir":
        """Sweep what dead owners left in ``base``, then make a directory of our own there.

        Raises ValueError if sockets in it would have longer names than the kernel takes.
        """
        parent = Path(base or tempfile.gettempdir())
        if len(str(parent)) > MAX_BASE_LENGTH:
            raise ValueError(f"runtime directory {parent} has more than {MAX_BASE_LENGTH} characters")
        parent.mkdir(parents=True, exist_ok=True)
        sweep(parent)
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        lock = os.open(path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return cls(path, lock)

    def write_secret(self, name: str, value: bytes) -> Path:
        """A file that only this user can read."""
        path = self.path / name
        handle = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(value)
        return path

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def sweep(parent: Path) -> int:
    """Remove the directories of owners that are gone; returns how many."""
    num_removed = 0
    for path in parent.glob(f"{PREFIX}*"):
        try:
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue  # another user's, or made this very moment
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        else:
            shutil.rmtree(path, ignore_errors=True)
            num_removed += 1
        finally:
            os.close(lock)
    return num_removed

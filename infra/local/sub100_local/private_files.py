"""Files that only their owner may read."""

import os
import secrets
import stat
from pathlib import Path

from sub100_bootstrap.failure import Failure


def write(path: Path, content: bytes) -> None:
    """Never readable by others, not for a moment; replaces an old file at once."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    temporary.replace(path)


def directory(path: Path) -> Path:
    """Make ``path`` with mode 0700; raises Failure if somebody else made it (in /tmp)."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise Failure(f"{path} belongs to somebody else: remove it and retry")
    path.chmod(0o700)
    return path

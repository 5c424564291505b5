"""``cache``: the cache's operator command against the stack of this checkout."""

import os
import subprocess
import sys
from pathlib import Path

from . import lifetime
from .directories import Directories
from .stack import REGION


def run(directories: Directories, arguments: list[str]) -> int:
    """Its exit code. Raises Failure if nothing runs, which its help does not need."""
    if not arguments or {"-h", "--help"} & set(arguments):
        return subprocess.run([sys.executable, "-m", "sub100_cache.admin", "--help"], check=False).returncode
    stack = lifetime.demand_running(directories).stack
    environment = os.environ | {
        "SUB100_REGION": REGION,
        "SUB100_NATS_URL": stack.nats_url(),
        "SUB100_NATS_USER": "operator",
        "SUB100_NATS_PASSWORD_FILE": str(Path(stack.secrets) / "nats-operator"),
    }
    command = [stack.control_python, "-m", "sub100_cache.admin", *arguments]
    return subprocess.run(command, env=environment, check=False).returncode

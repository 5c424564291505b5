"""Secrets of a local stack: the demo key lasts per machine, everything else per run."""

import hashlib
import json
import secrets
from pathlib import Path
from typing import Final

from . import private_files

NATS_USERS: Final = ("ingress", "cache", "scheduler", "prefill", "decode", "traces", "operator")
DEMO_TENANT: Final = "demo"


def demo_key(cache: Path) -> str:
    """The machine's demo key, made at the first call."""
    path = private_files.directory(cache) / "demo.key"
    if not path.exists():
        private_files.write(path, f"sk-demo-{secrets.token_urlsafe(24)}\n".encode())
    return path.read_text().strip()


def write_keys_file(path: Path, key: str) -> None:
    """Ingress's keys: hashes only. The demo tenant opts in to cached answers, to similar questions too."""
    entry = {
        "hash": hashlib.sha256(key.encode()).hexdigest(),
        "tenant": DEMO_TENANT,
        "cache": "all",
        "semantic": True,
    }
    private_files.write(path, json.dumps([entry], indent=1).encode())


def write_run_secrets(directory: Path) -> None:
    """The deployment secret and a password for each user of the bus and for Redis, one file each.

    Each starts with a letter: nats-server reads an unquoted value that starts with a digit as a number.
    """
    for name in ("deployment", "redis", *(f"nats-{user}" for user in NATS_USERS)):
        private_files.write(directory / name, f"s{secrets.token_hex(24)}".encode())


def read(directory: Path, name: str) -> str:
    return (directory / name).read_text().strip()

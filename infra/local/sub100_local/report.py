"""``status``: what runs, for how long, and what each service last said."""

import asyncio

from . import credentials, lifetime, ports
from .directories import Directories
from .fleet_watch import FleetWatch
from .runner import ProcessInfo, Runner
from .stack import REGION

LISTEN_S = 1.3
"""Longer than the interval at which services speak."""


async def status(directories: Directories) -> int:
    """Print a line for each program; 0 if all services are ready, else 1. Raises Failure if none runs."""
    saved = lifetime.demand_running(directories)
    processes = Runner(directories.socket).processes()
    words = await _listen(directories, saved.stack.nats_url())
    print(f"{saved.stack.model_name} on engine {saved.stack.engine}")
    print(f"{'program':<14} {'process':<10} {'pid':>8} {'up':>8} {'ops':>6}  state")
    is_healthy = True
    for info in processes:
        said = words.get(info.name, "silent" if "-" in info.name else "")
        is_healthy &= said.partition(" ")[0] in ("ready", "") and info.state in ("RUNNING", "STARTING")
        ops = saved.stack.ops_ports.get(info.name, "-")
        print(f"{info.name:<14} {info.state:<10} {info.pid or '-':>8} {_uptime(info):>8} {ops:>6}  {said}")
    for name, port in saved.stack.ingress_ports.items():
        print(f"{name}: http://{ports.HOST}:{port}/v1")
    print(f"ops: http://{ports.HOST}:<ops port>/metrics, /livez, /readyz; POST /drain")
    print(f"traces: http://{ports.HOST}:{saved.stack.traces_port}/")
    return 0 if is_healthy else 1


async def _listen(directories: Directories, url: str) -> dict[str, str]:
    """Instance -> state and detail; empty if the bus does not answer."""
    try:
        watch = await FleetWatch.open(url, credentials.read(directories.secrets, "nats-operator"), REGION)
    except TimeoutError:
        return {}
    await asyncio.sleep(LISTEN_S)
    await watch.close()
    return {name: f"{word.state} {word.detail}".strip() for name, word in watch.words().items()}


def _uptime(info: ProcessInfo) -> str:
    seconds = max(0, info.now - info.start) if info.is_up else 0
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"

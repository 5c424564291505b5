"""``run``, ``up``, ``down``, ``scale``: what the Makefile's targets of these names do."""

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any, Final

from sub100_bootstrap.exclusion import exclusive
from sub100_bootstrap.failure import Failure

from . import credentials, lifetime, preparation, programs, startup, tether
from .banner import banner
from .directories import Directories
from .fleet_watch import FleetWatch
from .lifetime import Saved
from .options import Options
from .runner import NotRunning, Runner
from .stack import REGION, Stack, replica_name, replicas_of
from .vigil import Vigil

Say = Callable[[str], None]
READY_TIMEOUT_S: Final = {"vllm": 600.0, "sim": 60.0}
SERVING_TIMEOUT_S: Final = 30.0
WATCH_S: Final = 1.0


async def run(directories: Directories, options: Options, say: Say) -> int:
    """In the foreground: start, say where it is, wait for Ctrl-C or SIGTERM, drain, leave nothing."""
    began = time.monotonic()
    with _alone(directories, say):
        stack = preparation.prepare(directories, options, say)
        stopping = _signals()
        try:
            names = _start(directories, stack, options, tether.to_parent)
        except BaseException:
            lifetime.stop(directories, say)
            raise
    try:
        if not await _or_stopped(stopping, _ready(directories, stack, names, say)):
            return 0
        print(banner(stack, credentials.demo_key(directories.cache), time.monotonic() - began))
        print("\nCtrl-C stops it.", flush=True)
        if await _or_stopped(stopping, _watch(directories, say)):
            say("stopped by 'make down'")
        return 0
    finally:
        if directories.run.exists():
            stopping.clear()
            say("stopping; once more to kill instead of draining")
            drained = asyncio.to_thread(lifetime.stop, directories, say)
            if not await _or_stopped(stopping, drained):
                lifetime.abandon(directories, say)


async def up(directories: Directories, options: Options, say: Say) -> int:
    """In the background; returns when everything is ready."""
    began = time.monotonic()
    with _alone(directories, say):
        stack = preparation.prepare(directories, options, say)
        stopping = _signals()
        try:
            names = _start(directories, stack, options, None)
            is_ready = await _or_stopped(stopping, _ready(directories, stack, names, say))
        except BaseException:
            lifetime.stop(directories, say)
            raise
        if not is_ready:
            lifetime.stop(directories, say)
            return 130
    print(banner(stack, credentials.demo_key(directories.cache), time.monotonic() - began))
    print("\n'make down' stops it.", flush=True)
    return 0


async def down(directories: Directories, say: Say) -> int:
    """Drain and stop what runs, and clean up what a crash left."""
    with _alone(directories, say):
        if not directories.run.exists():
            say("nothing is running from this checkout")
            return 0
        lifetime.stop(directories, say)
    return 0


async def scale(directories: Directories, wanted: dict[str, int], say: Say) -> int:
    """Add and remove replicas; the others go on undisturbed. Returns when new ones are ready and old ones
    have drained."""
    if not wanted:
        raise Failure("say which service and how many, for example: make scale PREFILL=2")
    with _alone(directories, say):
        saved = lifetime.demand_running(directories)
        runner = Runner(directories.socket)
        names = [info.name for info in runner.processes()]
        added: list[str] = []
        removed: list[str] = []
        stack = saved.stack
        for service, count in wanted.items():
            present = replicas_of(names, service)
            free = (index for index in range(1, len(present) + count + 1) if index not in present)
            for _ in range(count - len(present)):
                name = replica_name(service, index := next(free))
                stack = preparation.with_ports(stack, service, name)
                stack.service_program(service, index).write(directories.programs, directories.logs)
                added.append(name)
            removed += [replica_name(service, index) for index in present[count:]]
        lifetime.save(directories, Saved(preparation.without_ports(stack, removed), saved.session))
        await _add(directories, runner, stack, added, say)
        _remove(directories, runner, removed, say)
    for service, count in wanted.items():
        say(f"{service}: {count}")
    return 0


async def _add(directories: Directories, runner: Runner, stack: Stack, names: list[str], say: Say) -> None:
    """A replica that does not become ready is taken out again, and the others stay."""
    if not names:
        return
    say(f"starting {', '.join(names)}")
    try:
        runner.add(names)
        await _ready(directories, stack, names, say)
    except Failure:
        _remove(directories, runner, names, say)
        raise
    for name in names:
        if name in stack.ingress_ports:
            say(f"{name} listens on http://127.0.0.1:{stack.ingress_ports[name]}")


def _remove(directories: Directories, runner: Runner, names: list[str], say: Say) -> None:
    if not names:
        return
    say(f"draining {', '.join(names)}")
    late = runner.stop(names, lifetime.STOP_TIMEOUT_S)
    if late:
        raise Failure(f"{', '.join(late)} did not stop in time")
    for name in names:
        programs.remove(directories.programs, name)
    runner.forget(names)


def _start(
    directories: Directories, stack: Stack, options: Options, preexec: Callable[[], None] | None
) -> list[str]:
    return lifetime.start(directories, stack, options, credentials.demo_key(directories.cache), preexec)


async def _ready(directories: Directories, stack: Stack, names: list[str], say: Say) -> None:
    runner = Runner(directories.socket)
    password = credentials.read(directories.secrets, "nats-operator")
    try:
        watch = await FleetWatch.open(stack.nats_url(), password, REGION)
    except TimeoutError:
        startup.check_alive(runner.processes(), directories.logs)
        raise Failure(f"NATS does not answer\n{startup.tail(directories.logs, 'nats')}") from None
    try:
        await startup.wait_ready(runner, watch, names, directories.logs, say, READY_TIMEOUT_S[stack.engine])
        ingress_ports = [port for name, port in stack.ingress_ports.items() if name in names]
        await startup.wait_serving(watch, ingress_ports, SERVING_TIMEOUT_S)
    except NotRunning:
        raise Failure(f"the process runner died (see {directories.logs})") from None
    finally:
        await watch.close()


async def _watch(directories: Directories, say: Say) -> None:
    """Tell of restarts and of programs that gave up, until cancelled or until all was stopped elsewhere.

    Raises Failure if the runner dies."""
    runner = Runner(directories.socket)
    vigil = Vigil()
    while True:
        try:
            for line in vigil.look(runner.processes(), directories.logs):
                say(line)
        except NotRunning:
            with _alone(directories, say):  # whoever stops it removes what there was of the run
                if lifetime.load(directories) is None:
                    return
            raise Failure(f"the process runner is gone (make down, or see {directories.logs})") from None
        await asyncio.sleep(WATCH_S)


def _alone(directories: Directories, say: Say) -> AbstractContextManager[None]:
    return exclusive(directories.lock, lambda: say("another command of this checkout is at work; waiting"))


def _signals() -> asyncio.Event:
    """Set at SIGINT, SIGTERM or SIGHUP."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stopping.set)
    return stopping


async def _or_stopped(stopping: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """True when ``work`` is done (what it raises, is raised); False, and it is cancelled, at a signal."""
    working = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(stopping.wait())
    await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if working.done():
        working.result()
        return True
    working.cancel()
    await asyncio.gather(working, waiting, return_exceptions=True)
    return False

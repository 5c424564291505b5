"""The whole system as real processes on free ports, for end-to-end tests and benchmarks.

``with running_stack(...) as stack`` starts NATS, Redis and every service, waits until ingress and the
wanted workers are ready, and ends all of it. Replicas are named ``<service>-<n>``; each can be killed,
hung, terminated and started again.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.patience import PATIENCE_S
from tests.servers import Server, free_port, nats_server, redis_server

from sub100_proto import codec, subjects
from sub100_shared.bus import Bus, Incoming

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCES: Final = [
    ROOT / "proto",
    ROOT / "shared",
    *(ROOT / "services" / name for name in ("ingress", "cache", "scheduler", "prefill", "decode", "traces")),
]
START_TIMEOUT_S: Final = {"sim": 120.0, "vllm": 240.0}
STOP_TIMEOUT_S: Final = 30.0
TENANTS: Final[Mapping[str, Mapping[str, object]]] = {
    "demo": {"cache": "all"},
    "other": {"cache": "all"},
    "plain": {"cache": "off"},
    "similar": {"cache": "deterministic", "semantic": True, "threshold": 0.93, "judge": True, "ttl_s": 600},
    "stranger": {"cache": "deterministic", "semantic": True},
    "shadow": {"cache": "deterministic", "semantic": True, "shadow": True},
    "near": {"cache": "all", "semantic": True, "allotments": {"cache": 0.3, "prefill": 0.4}},
    "tools": {"cache": "all", "cache_tools": True},
    "narrow": {"cache": "off", "max_concurrency": 3},
    "single": {"cache": "all", "max_concurrency": 1},
}
"""Who may ask; ``Stack.keys`` has a key for each."""


class StackFailed(RuntimeError):
    """The message holds the end of the log of what did not start."""


class Replica:
    """One process of one service; ``start`` may be called again after it ended."""

    def __init__(self, service: str, instance: str, env: Mapping[str, str], log: Path) -> None:
        self.ops_url = f"http://127.0.0.1:{env['SUB100_OPS_PORT']}"
        self.service = service
        self.instance = instance
        self.env = dict(env)
        self._log_path = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"sub100_{self.service}"],
                env=self.env,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: int) -> None:
        """To the process and its children (an engine core is a child)."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM to the process alone: drain."""
        if self._process is not None:
            self._process.terminate()

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        assert self._process is not None
        return self._process.wait(timeout_s)

    def stop(self) -> None:
        """Drain, then kill what is left."""
        if self._process is None:
            return
        self.signal(signal.SIGCONT)
        self.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_TIMEOUT_S)
        self.signal(signal.SIGKILL)
        self._process.wait(5)

    def cpu_s(self) -> float:
        """CPU seconds of the process, its threads included (not its children)."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def log(self) -> str:
        """Whole lines: what is being written at this moment is left out."""
        whole, newline, _ = self._log_path.read_text(errors="replace").rpartition("\n")
        return whole + newline


class Stack:
    """See the module; made by ``running_stack``."""

    def __init__(self, directory: Path, nats: Server, redis: Server, start_timeout_s: float) -> None:
        self.directory = directory
        self._start_timeout_s = start_timeout_s
        self.nats = nats
        self.redis = redis
        self.keys = {name: f"sk-{name}-{secrets.token_hex(16)}" for name in TENANTS}
        self.replicas: dict[str, Replica] = {}
        self._env: dict[str, str] = {}
        self.port = free_port()
        self.traces_port = free_port()
        secret = directory / "secret"
        secret.write_text(secrets.token_hex(32))
        secret.chmod(0o600)
        keys = [
            {"hash": hashlib.sha256(key.encode()).hexdigest(), "tenant": name, **TENANTS[name]}
            for name, key in self.keys.items()
        ]
        (directory / "keys.json").write_text(json.dumps(keys))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def traces_url(self) -> str:
        return f"http://127.0.0.1:{self.traces_port}"

    def add(self, service: str, **env: str) -> Replica:
        """Start one more replica of a service."""
        number = sum(replica.service == service for replica in self.replicas.values()) + 1
        instance = f"{service}-{number}"
        full = {
            **{
                name: value for name, value in os.environ.items() if not name.startswith(("SUB100_", "OTEL_"))
            },
            "PYTHONPATH": os.pathsep.join(map(str, SOURCES)),
            "SUB100_INSTANCE": instance,
            "SUB100_OPS_PORT": str(free_port()),
            "OTEL_METRICS_EXPORTER": "none",
            "SUB100_NATS_URL": self.nats.url,
            "SUB100_REDIS_URL": self.redis.url,
            "SUB100_SECRET_FILE": str(self.directory / "secret"),
            "SUB100_DRAIN_TIMEOUT_S": "10",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",
            **self._env,
            **env,
        }
        mine = f"SUB100_{service.upper()}_"
        kept = {
            name: value
            for name, value in full.items()
            if not name.startswith(_SERVICE_PREFIXES) or name.startswith(mine)
        }
        if service == "traces":
            kept.pop("OTEL_EXPORTER_OTLP_ENDPOINT", None)
        replica = Replica(service, instance, kept, self.directory / f"{instance}.log")
        self.replicas[instance] = replica
        replica.start()
        return replica

    def wait_ready(self, *instances: str) -> None:
        """Wait until every named replica says ``ready`` on the bus, and until each scheduler that runs knows
        of as many workers as do; raises StackFailed."""
        asyncio.run(self._wait_ready(set(instances)))

    def wait_http(self, url: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                with urllib.request.urlopen(url, timeout=2):
                    return
            except OSError as error:
                if time.monotonic() > deadline:
                    raise StackFailed(f"{url}: {error}\n{self.logs()}") from error
                time.sleep(0.05)

    async def _wait_ready(self, wanted: set[str]) -> None:
        bus = await Bus.connect(self.nats.url, name="stack")
        ready: dict[str, str] = {}
        changed = asyncio.Event()

        def on_status(msg: Incoming) -> None:
            status = codec.decode_status(msg.data)
            replica = self.replicas.get(status.instance)
            if replica is None or not replica.is_running or status.pid != replica.pid:
                return
            ready.pop(status.instance, None)
            if status.state == "ready":
                ready[status.instance] = status.detail
            changed.set()

        try:
            await bus.listen(subjects.status_all("local"), on_status)
            deadline = time.monotonic() + self._start_timeout_s
            while missing := (wanted - ready.keys()) or self._schedulers_that_lack(ready):
                dead = [name for name in wanted if not self.replicas[name].is_running]
                if dead or time.monotonic() > deadline:
                    raise StackFailed(f"not ready: {dead or missing}\n{self.logs(*(dead or missing))}")
                changed.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), 0.2)
        finally:
            await bus.close(1)

    def _schedulers_that_lack(self, ready: Mapping[str, str]) -> set[str]:
        """Those that run and have not told of as many workers of each role as are ready. ``ready`` is the
        detail of each replica that is."""

        def num(role: str) -> int:
            replicas = (self.replicas[name] for name in ready)
            return sum(replica.service == role and replica.is_running for replica in replicas)

        return {
            name
            for name, replica in self.replicas.items()
            if replica.service == "scheduler" and replica.is_running
            if not (told := _WORKERS_TOLD.fullmatch(ready.get(name, "")))
            or int(told[1]) < num("prefill")
            or int(told[2]) < num("decode")
        }

    def logs(self, *instances: str) -> str:
        """The ends of the logs of these replicas (all, if none is named)."""
        chosen = instances or tuple(self.replicas)
        return "\n".join(f"--- {name}\n{self.replicas[name].log[-3000:]}" for name in chosen)

    def stop(self) -> None:
        """End all of it at once; idempotent."""
        for replica in self.replicas.values():
            if replica.is_running:
                replica.signal(signal.SIGCONT)
                replica.terminate()
        for replica in self.replicas.values():
            replica.stop()


_PATIENT: Final = {
    "SUB100_INGRESS_PLACE_TIMEOUT_MS": "10000",
    "SUB100_INGRESS_CLAIM_TIMEOUT_MS": "10000",
    "SUB100_CACHE_MAX_LOOKUP_MS": "5000",
}
"""Nobody is taken for dead who is only kept waiting for a core; the dead are told by NATS and by a Ping."""
_WORKERS_TOLD: Final = re.compile(r"prefill (\d+), decode (\d+)")
"""A scheduler's detail."""
_SERVICE_PREFIXES: Final = tuple(
    f"SUB100_{name}_" for name in ("INGRESS", "CACHE", "SCHEDULER", "PREFILL", "DECODE", "TRACES")
)


@contextlib.contextmanager
def running_stack(
    model: Path,
    *,
    engine: str = "sim",
    timing: str = "zero",
    num_prefill: int = 1,
    num_decode: int = 1,
    num_ingress: int = 1,
    traces: bool = False,
    env: Mapping[str, str] | None = None,
) -> Iterator[Stack]:
    """Everything up and ready; everything gone at the end."""
    directory = Path(tempfile.mkdtemp(prefix="sub100-stack-"))
    with contextlib.ExitStack() as cleanup:
        cleanup.callback(shutil.rmtree, directory, ignore_errors=True)
        nats = cleanup.enter_context(nats_server())
        redis = cleanup.enter_context(redis_server())
        stack = Stack(directory, nats, redis, START_TIMEOUT_S[engine])
        cleanup.callback(stack.stop)
        stack._env = {
            "SUB100_INGRESS_HOST": "127.0.0.1",
            "SUB100_INGRESS_MODEL": str(model),
            "SUB100_INGRESS_SERVED_NAME": "test-model",
            "SUB100_INGRESS_KEYS_FILE": str(directory / "keys.json"),
            **_PATIENT,
            **_worker_env("PREFILL", model, engine, timing),
            **_worker_env("DECODE", model, engine, timing),
            "SUB100_TRACES_PORT": str(stack.traces_port),
            **(env or {}),
        }
        if traces:
            stack._env["OTEL_EXPORTER_OTLP_ENDPOINT"] = stack.traces_url
            stack.add("traces")
        stack.add("cache")
        stack.add("scheduler")
        for _ in range(num_prefill):
            stack.add("prefill")
        for _ in range(num_decode):
            stack.add("decode")
        for index in range(num_ingress):
            stack.add("ingress", SUB100_INGRESS_PORT=str(stack.port if index == 0 else free_port()))
        stack.wait_ready(*stack.replicas)
        stack.wait_http(f"{stack.url}/readyz")
        yield stack


def _worker_env(role: str, model: Path, engine: str, timing: str) -> dict[str, str]:
    return {
        f"SUB100_{role}_ENGINE": engine,
        f"SUB100_{role}_MODEL": str(model),
        f"SUB100_{role}_SERVED_NAME": "test-model",
        **({f"SUB100_{role}_TIMING": timing} if engine == "sim" else {f"SUB100_{role}_COMPILE": "off"}),
    }

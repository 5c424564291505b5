"""vLLM's own server as a process, to compare with: plain, or one side of its NIXL prefill/decode pair."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
from tests.servers import free_port

START_TIMEOUT_S = 420.0
SERVED_NAME = "test-model"
NIXL = {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cpu"}
"""What the documentation of the connector gives to both sides."""


class StockServer:
    """Made -> ``up``, after which ``port`` serves OpenAI's API inside ``awake``: it is stopped otherwise,
    because NIXL's engines poll when they are idle. The first start compiles the model, a minute of one core
    for a small one, and several servers may do so at the same time; later ones find that in vLLM's cache,
    from which a CPU cannot load what is compiled ahead of time.

    A loopback address of its own, ``nixl_host``, makes it one side of a pair.
    """

    def __init__(self, model: Path, log: Path, *, cpu: int, max_model_len: int, nixl_host: str = "") -> None:
        self.port = free_port()
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
        command += ["--host", "127.0.0.1", "--port", str(self.port), "--served-model-name", SERVED_NAME]
        command += [
            "--max-model-len",
            str(max_model_len),
            "--block-size",
            "32",
            "--disable-uvicorn-access-log",
        ]
        env = os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_USE_AOT_COMPILE": "0"}
        if nixl_host:
            command += ["--kv-transfer-config", json.dumps(NIXL)]
            env |= {"UCX_TLS": "tcp", "VLLM_NIXL_SIDE_CHANNEL_HOST": nixl_host}
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command, env=env, stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True
            )
        self._log = log
        self._cpu = cpu

    def up(self) -> None:
        """Wait until it serves; pin its engine; put it to sleep."""
        self._wait(self._log)
        pin_engine(self._process.pid, self._cpu)
        self.signal(signal.SIGSTOP)

    def post(self, body: dict[str, Any]) -> dict[str, Any]:
        """An answer that is not streamed."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(
                "POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"}
            )
            answer = connection.getresponse()
            payload = answer.read()
            if answer.status != 200:
                raise RuntimeError(f"{answer.status}: {payload[:300]!r}")
            return dict(json.loads(payload))
        finally:
            connection.close()

    def signal(self, number: signal.Signals) -> None:
        """To the server and its engine."""
        os.killpg(self._process.pid, number)

    def stop(self) -> None:
        """Idempotent."""
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(15)
            self.signal(signal.SIGKILL)
        self._process.wait(10)

    def _wait(self, log: Path) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise RuntimeError(f"vllm serve ended: {log.read_text(errors='replace')[-2000:]}")
            with contextlib.suppress(OSError):
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return
            time.sleep(0.5)
        raise RuntimeError(f"vllm serve not up: {log.read_text(errors='replace')[-2000:]}")


def pin_engine(server_pid: int, cpu: int) -> None:
    """All threads of the process that computes, and those it will make. vLLM's own server has a process for
    that below the engine core's, on CPUs; the others run where they like."""
    children = psutil.Process(server_pid).children(recursive=True)
    computing = [child for child in children if child.name().startswith("VLLM::Worker")]
    computing = computing or [child for child in children if child.name().startswith("VLLM::Engine")]
    for thread in computing[0].threads():
        os.sched_setaffinity(thread.id, {cpu})


@contextlib.contextmanager
def awake(*servers: StockServer) -> Iterator[None]:
    """For the time of the block."""
    for server in servers:
        server.signal(signal.SIGCONT)
    try:
        yield
    finally:
        for server in servers:
            server.signal(signal.SIGSTOP)

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

START_TIMEOUT_S = 180.0
SERVED_NAME = "test-model"
NIXL = {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cpu"}
"""What the documentation of the connector gives to both sides."""


class StockServer:
    """``port`` serves OpenAI's API once the constructor is through."""

    def __init__(self, model: Path, log: Path, *, cpu: int, max_model_len: int, nixl: bool = False) -> None:
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
        env = os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port())}
        if nixl:
            command += ["--kv-transfer-config", json.dumps(NIXL)]
            env |= {"UCX_TLS": "tcp", "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1"}
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command, env=env, stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True
            )
        try:
            self._wait(log)
            for engine in psutil.Process(self._process.pid).children(recursive=True):
                pin(engine.pid, cpu)
        except BaseException:
            self.stop()
            raise

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
        """To the server and its engine: SIGSTOP takes an idle one that polls off the CPU."""
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


def pin(pid: int, cpu: int) -> None:
    """All threads of the process, and those it will make."""
    for thread in psutil.Process(pid).threads():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(thread.id, {cpu})


@contextlib.contextmanager
def stopped(*servers: StockServer) -> Iterator[None]:
    """Frozen for the time of the block."""
    for server in servers:
        server.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for server in servers:
            server.signal(signal.SIGCONT)

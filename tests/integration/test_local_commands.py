"""The local stack's commands as processes, with the simulated engine and every service."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.servers import free_port

from sub100_bootstrap.places import ROOT, python_path

TIMEOUT_S = 90.0


class Machine:
    """A machine of one's own: cache and temporary directory apart from those of whoever runs the tests."""

    def __init__(self, home: Path) -> None:
        self.temporary = home / "t"
        self.temporary.mkdir()
        self.port = free_port()
        self.environment = {
            **os.environ,
            "PYTHONPATH": python_path(),
            "XDG_CACHE_HOME": str(home / "cache"),
            "TMPDIR": str(self.temporary),
            "SUB100_CONTROL_PYTHON": sys.executable,
        }

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "sub100_local", *arguments]

    def start_arguments(self) -> list[str]:
        return ["--engine", "sim", "--port", str(self.port), "--traces-port", str(free_port())]

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            env=self.environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def processes(self) -> list[str]:
        """Command lines of all processes whose temporary directory is this machine's."""
        mark = f"TMPDIR={self.temporary}"
        found = []
        for entry in Path("/proc").iterdir():
            try:
                is_ours = entry.name.isdecimal() and mark in (entry / "environ").read_text()
                if is_ours and (line := (entry / "cmdline").read_text()):
                    found.append(line.replace("\0", " "))
            except (OSError, UnicodeDecodeError):
                continue
        return found

    def left_behind(self) -> list[str]:
        return [*self.processes(), *(path.name for path in self.temporary.iterdir())]


@pytest.fixture
def machine() -> Iterator[Machine]:
    home = Path(tempfile.mkdtemp(prefix="s-"))
    made = Machine(home)
    yield made
    made.call("down")
    shutil.rmtree(home, ignore_errors=True)


def ask(url: str, key: str) -> str:
    """Stream an answer to its end; returns the tier that it came from."""
    body = {
        "model": "tiny-llama",
        "stream": True,
        "temperature": 0,
        "max_tokens": 128,
        "messages": [{"role": "user", "content": "Which way?"}],
    }
    request = urllib.request.Request(
        f"{url}/chat/completions",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        assert response.read().endswith(b"data: [DONE]\n\n")
        return str(response.headers["x-sub100-tier"])


def said(text: str, pattern: str) -> str:
    found = re.search(pattern, text)
    assert found is not None, text
    return found.group(1)


def test_stack_comes_up_answers_scales_and_leaves_nothing(machine: Machine) -> None:
    up = machine.call("up", *machine.start_arguments())
    assert up.returncode == 0, up.stderr
    url, key = said(up.stdout, r"API +(\S+)"), said(up.stdout, r"demo key (\S+)")
    assert ask(url, key) == "cold"
    assert len(machine.processes()) >= 9

    again = machine.call("up", *machine.start_arguments())
    assert again.returncode == 1
    assert "already running from this checkout" in again.stderr

    scaled = machine.call("scale", "prefill=2", "ingress=2")
    assert scaled.returncode == 0, scaled.stderr
    status = machine.call("status")
    assert status.returncode == 0, status.stdout
    pid = said(status.stdout, r"prefill-1 +\S+ +(\d+)")
    assert re.search(r"prefill-2 +\S+ +\d+ .* ready", status.stdout)
    ops = said(status.stdout, r"prefill-2 +\S+ +\d+ +\S+ +(\d+)")
    with urllib.request.urlopen(f"http://127.0.0.1:{ops}/metrics", timeout=10) as metrics:
        assert b"sub100_engine_steps_total" in metrics.read()
    second = said(status.stdout, r"ingress-2: (\S+)")
    assert second != url
    assert ask(second, key) in ("cold", "cache_exact")

    assert machine.call("scale", "prefill=1", "ingress=1").returncode == 0
    after = machine.call("status").stdout
    assert "prefill-2" not in after
    assert "ingress-2" not in after
    assert said(after, r"prefill-1 +\S+ +(\d+)") == pid

    down = machine.call("down")
    assert down.returncode == 0, down.stderr
    assert machine.left_behind() == []
    assert machine.call("status").returncode == 1


def in_foreground(machine: Machine) -> "subprocess.Popen[str]":
    """``run``, once everything is up."""
    child = subprocess.Popen(
        machine.command("run", *machine.start_arguments()),
        env=machine.environment,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert child.stdout is not None
    lines = []
    for line in child.stdout:
        lines.append(line)
        if "Ctrl-C stops it" in line:
            return child
    raise AssertionError("".join(lines))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_ends_cleanly_at_a_signal(machine: Machine, number: signal.Signals) -> None:
    child = in_foreground(machine)
    child.send_signal(number)
    rest = child.communicate(timeout=TIMEOUT_S)[0]
    assert child.returncode == 0, rest
    assert machine.left_behind() == []


def test_run_ends_cleanly_when_it_is_stopped_from_elsewhere(machine: Machine) -> None:
    child = in_foreground(machine)
    down = machine.call("down")
    assert down.returncode == 0, down.stderr
    rest = child.communicate(timeout=TIMEOUT_S)[0]
    assert child.returncode == 0, rest
    assert "stopped by 'make down'" in rest
    assert machine.left_behind() == []


def test_up_after_a_crash_cleans_up_and_starts(machine: Machine) -> None:
    assert machine.call("up", *machine.start_arguments()).returncode == 0
    (pid_file,) = machine.temporary.glob("sub100-*/supervisord.pid")
    os.kill(int(pid_file.read_text()), signal.SIGKILL)
    up = machine.call("up", *machine.start_arguments())
    assert up.returncode == 0, up.stderr
    assert "cleaning up after a run that did not end well" in up.stderr
    assert machine.call("down").returncode == 0
    assert machine.left_behind() == []


def test_up_with_a_taken_port_is_one_line_and_starts_nothing(machine: Machine) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", machine.port))
        taken.listen()
        up = machine.call("up", *machine.start_arguments())
    assert up.returncode == 1
    assert up.stderr.strip().splitlines() == [
        f"[sub100] error: port {machine.port} is taken on 127.0.0.1: stop what listens there, "
        "or choose another (PORT=...)"
    ]
    assert machine.left_behind() == []

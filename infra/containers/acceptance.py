"""``acceptance.py PROJECT KEY_FILE``: what must hold of the composed system, asked of the running containers.

Ports come from PORT and TRACES_PORT, as for compose. Each check raises CheckFailed with what it saw. podman
without systemd runs no health checks by itself, so they are run from here.
"""

import json
import os
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import openai

SERVICES: Final = ("nats", "redis", "traces", "cache", "scheduler", "prefill", "decode", "ingress")
TRACED: Final = {f"sub100-{name}" for name in ("ingress", "cache", "scheduler", "prefill", "decode")}
HEALTHY_TIMEOUT_S: Final = 180.0
TRACE_TIMEOUT_S: Final = 20.0
POLL_S: Final = 0.5
UID: Final = "10001"


class CheckFailed(RuntimeError):
    """What was expected, and what was seen."""


class System:
    """The running project: its containers, its two published ports, its demo key."""

    def __init__(self, project: str, key: str, operator_key: str, port: str, traces_port: str) -> None:
        self._project = project
        self.key = key
        self.operator_key = operator_key
        self.url = f"http://127.0.0.1:{port}"
        self.traces_url = f"http://127.0.0.1:{traces_port}"

    def container(self, service: str) -> str:
        return f"{self._project}_{service}_1"

    def execute(self, service: str, *command: str) -> subprocess.CompletedProcess[str]:
        return podman("exec", self.container(service), *command)

    def log(self, service: str) -> str:
        result = podman("logs", "--tail", "20", self.container(service))
        return result.stdout + result.stderr


def check_healthy(system: System) -> str:
    """Every health check of the compose file passes, within one bound for all."""
    deadline = time.monotonic() + HEALTHY_TIMEOUT_S
    for service in SERVICES:
        while podman("healthcheck", "run", system.container(service)).returncode != 0:
            if time.monotonic() > deadline:
                raise CheckFailed(f"{service} is not healthy:\n{system.log(service)}")
            time.sleep(POLL_S)
    return f"{len(SERVICES)} containers healthy"


def check_hardened(system: System) -> str:
    """No root, no capability, nothing to write to but /tmp, limits set."""
    for service in SERVICES:
        inspected = json.loads(podman("inspect", system.container(service)).stdout)[0]
        host = inspected["HostConfig"]
        seen = {
            "uid": system.execute(service, "id", "-u").stdout.strip(),
            "capabilities": inspected["EffectiveCaps"] or [],
            "no_new_privileges": "no-new-privileges" in str(host["SecurityOpt"]),
            "limits": host["Memory"] > 0 and host["PidsLimit"] > 0 and host["CpuQuota"] > 0,
            "root_writable": system.execute(service, "touch", "/usr/probe").returncode == 0,
            "tmp_writable": system.execute(service, "touch", "/tmp/probe").returncode == 0,
        }
        wanted = {
            "uid": UID,
            "capabilities": [],
            "no_new_privileges": True,
            "limits": True,
            "root_writable": False,
            "tmp_writable": True,
        }
        if seen != wanted:
            raise CheckFailed(f"{service}: wanted {wanted}, saw {seen}")
    return "non-root, no capabilities, read-only, limited"


def check_networks(system: System) -> str:
    """Only ingress and traces are published, on loopback; Redis is in reach of the cache alone."""
    published = {service: podman("port", system.container(service)).stdout.split() for service in SERVICES}
    open_ports = {service: ports for service, ports in published.items() if ports}
    addresses = [address for ports in open_ports.values() for address in ports[2::3]]  # port, arrow, address
    if set(open_ports) != {"ingress", "traces"} or any(not at.startswith("127.0.0.1:") for at in addresses):
        raise CheckFailed(f"published: {open_ports}")
    connect = ("python", "-c", "import socket; socket.create_connection(('redis', 6379), 2)")
    if system.execute("cache", *connect).returncode != 0:
        raise CheckFailed("cache does not reach Redis")
    if system.execute("scheduler", *connect).returncode == 0:
        raise CheckFailed("scheduler reaches Redis")
    return "only ingress and traces published, on loopback"


def check_answers(system: System) -> str:
    """A streamed answer from the workers, then the same from the cache; a wrong key gets nothing."""
    client = openai.OpenAI(base_url=f"{system.url}/v1", api_key=system.key, timeout=20, max_retries=0)
    question = f"Which hop spent the budget of {secrets.token_hex(4)}?"
    first_tier, first = stream(client, question)
    if first_tier not in ("cold", "warm") or not first:
        raise CheckFailed(f"first answer: tier {first_tier}, {len(first)} characters")
    deadline = time.monotonic() + 5
    while True:  # the fill is stored after the stream has ended
        second_tier, second = stream(client, question)
        if second != first:
            raise CheckFailed("the same question got another answer")
        if second_tier == "cache_exact":
            break
        if time.monotonic() > deadline:
            raise CheckFailed(f"no cache hit: tier {second_tier}")
        time.sleep(POLL_S)
    try:
        stream(openai.OpenAI(base_url=f"{system.url}/v1", api_key="sk-wrong", max_retries=0), question)
    except openai.AuthenticationError:
        return f"{len(first)} characters streamed ({first_tier}), then from the cache; a wrong key refused"
    raise CheckFailed("a wrong key was served")


def check_trace(system: System) -> str:
    """One trace holds spans of all five services."""
    deadline = time.monotonic() + TRACE_TIMEOUT_S
    seen: set[str] = set()
    while time.monotonic() < deadline:
        for request in get_json(f"{system.traces_url}/api/traces", system.operator_key)["requests"]:
            trace = get_json(f"{system.traces_url}/api/trace/{request['trace_id']}", system.operator_key)
            seen = {row["span"]["service"] for row in trace["rows"]}
            if seen >= TRACED:
                return f"one trace over {', '.join(sorted(seen))}"
        time.sleep(POLL_S)
    raise CheckFailed(f"no trace over {TRACED}; last {seen}")


def check_drained(system: System) -> str:
    """SIGTERM ends every service of ours by itself, with exit code 0."""
    for service in ("ingress", "prefill", "decode", "scheduler", "cache", "traces"):
        podman("stop", "--time", "60", system.container(service), timeout_s=90)
        code = podman("inspect", "--format", "{{.State.ExitCode}}", system.container(service)).stdout.strip()
        if code != "0":
            raise CheckFailed(f"{service} ended with {code}:\n{system.log(service)}")
    return "every service drained and ended with 0"


def stream(client: openai.OpenAI, question: str) -> tuple[str, str]:
    """One streamed answer: its tier and its text; raises CheckFailed if it does not end as it should."""
    with client.chat.completions.with_streaming_response.create(
        model="sub100",
        messages=[{"role": "user", "content": question}],
        max_tokens=128,
        temperature=0,
        stream=True,
    ) as response:
        tier = response.headers.get("x-sub100-tier", "")
        text, finish = "", ""
        for chunk in response.parse():
            for choice in chunk.choices:
                text += choice.delta.content or ""
                finish = choice.finish_reason or finish
    if finish != "stop":  # what a limit cut off would never enter the cache
        raise CheckFailed(f"finish reason {finish!r}")
    return tier, text


def get_json(url: str, key: str) -> Any:
    asked = urllib.request.Request(url, headers={"authorization": f"Bearer {key}"})
    try:
        with urllib.request.urlopen(asked, timeout=5) as answer:
            return json.load(answer)
    except urllib.error.URLError as error:
        raise CheckFailed(f"{url}: {error}") from error


def podman(*arguments: str, timeout_s: float = 30.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["podman", *arguments], capture_output=True, text=True, timeout=timeout_s, check=False
    )


CHECKS: Final[tuple[Callable[[System], str], ...]] = (
    check_healthy,
    check_hardened,
    check_networks,
    check_answers,
    check_trace,
    check_drained,
)


def main(project: str, key_file: str) -> int:
    key = Path(key_file).read_text().strip()
    operator_key = Path(key_file).with_name("operator.key").read_text().strip()
    system = System(project, key, operator_key, os.environ["PORT"], os.environ["TRACES_PORT"])
    for check in CHECKS:
        try:
            print(f"[containers] {check.__name__}: {check(system)}", flush=True)
        except (CheckFailed, openai.OpenAIError, subprocess.TimeoutExpired) as error:
            print(f"[containers] {check.__name__} failed: {error}", file=sys.stderr)
            for service in SERVICES:
                print(f"--- {service}\n{system.log(service)}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))

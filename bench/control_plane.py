"""``make bench``: what the control plane itself costs.

A scripted zero-latency engine behind the real services (real NATS, real Redis, real HTTP); one client
process measures TTFT at 1, 16 and 64 streams, each answer 16 tokens in 16 chunks, interleaved with the
same client on a bare SSE server. ``added_ttft_ms`` is ours minus the bare server's, quantile by quantile.
CPU is user + system time of each service's process over the timed requests.
"""

import asyncio
import contextlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvloop
from tests.servers import free_port
from tests.stack import Stack, running_stack

from sub100_local.tiny_model import make

from .client import Sample, StreamClient, median, quantile
from .results import arguments, write

NUM_TOKENS = 16
STREAMS = (1, 16, 64)
SERVICES = ("ingress", "cache", "scheduler", "prefill", "decode", "traces")


def body(number: int) -> dict[str, Any]:
    """A prompt of its own each time: the exact cache must miss."""
    return {
        "model": "test-model",
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": f"Question number {number}: how is the weather?"},
        ],
        "max_tokens": NUM_TOKENS,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
    }


async def ask_all(clients: list[StreamClient], bodies: Iterator[dict[str, Any]], rounds: int) -> list[Sample]:
    """Each client asks ``rounds`` times, one after another; the clients run side by side."""

    async def one(client: StreamClient) -> list[Sample]:
        return [await client.ask(next(bodies)) for _ in range(rounds)]

    return [sample for samples in await asyncio.gather(*map(one, clients)) for sample in samples]


async def measure(stack: Stack, bare_port: int, num_streams: int, num_requests: int) -> dict[str, Any]:
    """Both servers in turns, in small slices, so that a noisy moment hits both."""
    numbers = iter(range(int(time.time() * 1e6), 2**62))
    bodies = (body(number) for number in numbers)
    ours = [
        StreamClient("127.0.0.1", stack.port, "/v1/chat/completions", stack.keys["demo"])
        for _ in range(num_streams)
    ]
    bare = [StreamClient("127.0.0.1", bare_port, "/", "none") for _ in range(num_streams)]
    await ask_all(ours, bodies, max(3, 60 // num_streams))
    await ask_all(bare, bodies, max(3, 60 // num_streams))
    slices = 8
    rounds = max(1, num_requests // num_streams // slices)
    cpu = dict.fromkeys(SERVICES, 0.0)
    our_samples: list[Sample] = []
    bare_samples: list[Sample] = []
    for _ in range(slices):
        before = cpu_by_service(stack)
        our_samples += await ask_all(ours, bodies, rounds)
        await asyncio.sleep(0.05)
        for service, spent in cpu_by_service(stack).items():
            cpu[service] += spent - before[service]
        bare_samples += await ask_all(bare, bodies, rounds)
    for client in (*ours, *bare):
        await client.close()
    wrong = [s for s in our_samples if s.status != 200]
    if wrong:
        raise SystemExit(
            f"{len(wrong)} of {len(our_samples)} answers were not 200: {wrong[0]}\n{stack.logs()}"
        )
    return {
        "streams": num_streams,
        "requests": len(our_samples),
        "chunks_per_answer": median([s.num_chunks for s in our_samples]),
        "ttft_ms": {"p50": quantile_of(our_samples, 0.5), "p99": quantile_of(our_samples, 0.99)},
        "bare_ttft_ms": {"p50": quantile_of(bare_samples, 0.5), "p99": quantile_of(bare_samples, 0.99)},
        "added_ttft_ms": {
            "p50": quantile_of(our_samples, 0.5) - quantile_of(bare_samples, 0.5),
            "p99": quantile_of(our_samples, 0.99) - quantile_of(bare_samples, 0.99),
        },
        "cpu_ms_per_request": {
            **{service: spent * 1e3 / len(our_samples) for service, spent in cpu.items() if spent},
            "all_but_traces": sum(spent for service, spent in cpu.items() if service != "traces")
            * 1e3
            / len(our_samples),
        },
    }


def quantile_of(samples: list[Sample], q: float) -> float:
    return quantile([sample.ttft_ms for sample in samples], q)


def cpu_by_service(stack: Stack) -> dict[str, float]:
    spent = dict.fromkeys(SERVICES, 0.0)
    for replica in stack.replicas.values():
        spent[replica.service] += replica.cpu_s()
    return spent


@contextlib.contextmanager
def bare_server() -> Iterator[int]:
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "bench.bare_sse", str(port)])
    try:
        deadline = time.monotonic() + 10
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            if time.monotonic() > deadline:
                raise SystemExit("the bare server did not start")
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(5)


def run(model: Path, *, cache: bool, tracing: bool, num_requests: int) -> list[dict[str, Any]]:
    env = {} if cache else {"SUB100_INGRESS_CACHE": "false"}
    with bare_server() as bare_port, running_stack(model, traces=tracing, env=env) as stack:
        rows = []
        for num_streams in STREAMS:
            row = uvloop.run(measure(stack, bare_port, num_streams, num_requests))
            rows.append({"cache": cache, "tracing": tracing, **row})
            print_row(rows[-1])
        return rows


def print_row(row: dict[str, Any]) -> None:
    cpu = row["cpu_ms_per_request"]
    parts = " ".join(f"{service} {cpu[service]:.2f}" for service in SERVICES if service in cpu)
    added = row["added_ttft_ms"]
    print(
        f"cache {'on ' if row['cache'] else 'off'} tracing {'on ' if row['tracing'] else 'off'} "
        f"streams {row['streams']:>2}  TTFT p50 {row['ttft_ms']['p50']:6.2f}  added p50 {added['p50']:6.2f} "
        f"p99 {added['p99']:6.2f} ms  CPU {cpu['all_but_traces']:.2f} ms ({parts})",
        flush=True,
    )


def main() -> None:
    parser = arguments(__doc__, "control-plane")
    parser.add_argument("--requests", type=int, default=1024, help="per row")
    parser.add_argument(
        "--only", choices=["all", "on"], default="all", help="'on': cache and tracing on, only"
    )
    options = parser.parse_args()
    variants = (
        [(True, True)]
        if options.only == "on"
        else [(True, True), (True, False), (False, True), (False, False)]
    )
    with tempfile.TemporaryDirectory() as directory:
        model = make(Path(directory) / "tiny")
        rows = [
            row
            for cache, tracing in variants
            for row in run(model, cache=cache, tracing=tracing, num_requests=options.requests)
        ]
    write(options.out, "control plane behind a zero-latency engine, 16 tokens in 16 chunks", rows=rows)


if __name__ == "__main__":
    main()

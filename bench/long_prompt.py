"""``make bench-long``: how long a 100,000-token prompt holds other requests up at ingress.

A probe asks ``/healthz`` over a warm connection, one question after another, while prompts of 100k
tokens are posted one after another (real services, simulated engine); its slowest answers show how long
the event loop stood still. The same probe beside short prompts is the yardstick.
"""

import asyncio
import json
import random
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop
from tests.stack import Stack, running_stack
from tokenizers import Tokenizer

from sub100_local.tiny_model import make

from .client import StreamClient, quantile
from .results import arguments, write

NUM_TOKENS = 100_000


class Probe:
    """Round trips of ``GET /healthz`` in milliseconds, until stopped."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.times_ms: list[float] = []

    async def run(self, while_running: Awaitable[Any]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        work = asyncio.ensure_future(while_running)
        while not work.done():
            start = time.perf_counter()
            writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            await reader.readexactly(length)
            self.times_ms.append((time.perf_counter() - start) * 1e3)
            await asyncio.sleep(0.001)
        await work
        writer.close()


def text_of(tokenizer: Tokenizer, num_tokens: int) -> str:
    """Words that make about this many tokens, in an order that no cache has seen."""
    chance = random.Random(time.time_ns())
    words = ["import", "return", "def", "value", "self", "None", "class", "with", "assert", "yield"]
    sample = " ".join(chance.choices(words, k=1000))
    per_word = len(tokenizer.encode(sample).ids) / 1000
    return " ".join(chance.choices(words, k=int(num_tokens / per_word)))


async def measure(stack: Stack, make_text: Callable[[], str], rounds: int) -> dict[str, float]:
    client = StreamClient("127.0.0.1", stack.port, "/v1/chat/completions", stack.keys["plain"])
    probe = Probe(stack.port)

    async def post() -> None:
        for _ in range(rounds):
            sample = await client.ask(
                {
                    "model": "test-model",
                    "messages": [{"role": "user", "content": make_text()}],
                    "max_tokens": 4,
                    "stream": True,
                }
            )
            if sample.status != 200:
                raise SystemExit(f"status {sample.status}")

    await probe.run(post())
    await client.close()
    return {
        "probes": len(probe.times_ms),
        "p50_ms": quantile(probe.times_ms, 0.5),
        "p99_ms": quantile(probe.times_ms, 0.99),
        "max_ms": max(probe.times_ms),
    }


def roomy(directory: Path) -> Path:
    """The tiny model with a context that 100k tokens fit into; only the simulated engine can serve it."""
    model = shutil.copytree(make(directory / "tiny"), directory / "roomy")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 131_072}))
    tokenizer_config = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps(tokenizer_config | {"model_max_length": 131_072}))
    return model


def main() -> None:
    parser = arguments(__doc__, "long-prompt")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        model = roomy(Path(directory))
        tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        long_text = text_of(tokenizer, NUM_TOKENS)
        num_tokens = len(tokenizer.encode(long_text).ids)
        with running_stack(model) as stack:
            short = uvloop.run(measure(stack, lambda: "Hello there!", options.rounds * 40))
            long = uvloop.run(measure(stack, lambda: f"{time.time_ns()} {long_text}", options.rounds))
    held_up = {"p99": long["p99_ms"] - short["p99_ms"], "max": long["max_ms"] - short["max_ms"]}
    print("beside short prompts", json.dumps(short))
    print("beside long prompts ", json.dumps(long))
    print("held up, ms         ", json.dumps(held_up))
    write(
        options.out,
        f"round trips of a probe beside prompts of {num_tokens} tokens",
        beside_short_prompts=short,
        beside_long_prompts=long,
        held_up_ms=held_up,
    )


if __name__ == "__main__":
    main()

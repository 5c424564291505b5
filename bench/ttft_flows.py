"""``make bench-ttft``: the first token from prefill, against what else could be run.

Real vLLM, one pinned thread per engine, decode idle, flows interleaved request by request in one run:

- ``ours``: the whole system, HTTP to first content byte; the first token leaves from prefill.
- ``single``: ``vllm serve``, one plain engine.
- ``stock``: vLLM's NIXL pair: prefill with ``max_tokens=1``, then decode takes the KV and makes the first
  token again. The client plays the proxy, so no hop is charged for it.

Ratios are medians over rounds of one request a flow, each flow's first as often as its last. ``t2`` is the
second token's gap, ``step`` the median of the later gaps. ``warm``: the same 2,000-token system prompt again
with another question, against cold ones, at ours.
"""

import asyncio
import contextlib
import random
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from tests.stack import Stack, running_stack

from sub100_local.tiny_model import make

from .client import Sample, StreamClient
from .results import arguments, write
from .stock_vllm import SERVED_NAME, StockServer, awake, pin_engine

LENGTHS = (64, 500, 2_000)
LONG = 1_000
"""Prompts from here on are asked half as often: their times vary less, and take longer."""
MAX_MODEL_LEN = 4_096
NUM_TOKENS = 8
NUM_WAKING = 16
"""Tokens: less than a block, so that no prefix cache keeps any of them."""


def completion(prompt: list[int], num_tokens: int = 1) -> dict[str, Any]:
    return {
        "model": SERVED_NAME,
        "prompt": prompt,
        "max_tokens": num_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
    }


class Prompts:
    """Random ordinary tokens: no two prompts share a block, so every prefix cache is cold."""

    def __init__(self, vocab_size: int) -> None:
        self._random = random.Random(1)
        self._ids = range(vocab_size // 4, vocab_size // 2)

    def make(self, num_tokens: int) -> list[int]:
        return self._random.choices(self._ids, k=num_tokens)


async def fresh(client: StreamClient, body: dict[str, Any]) -> Sample:
    """Over a new connection: servers close those that are idle while others have their turn."""
    await client.close()
    return await client.ask(body)


async def ask_stock(
    prefill: StockServer, decode: StockServer, client: StreamClient, prompt: list[int]
) -> Sample:
    """What a proxy does: prefill to its end, then decode with the parameters that prefill returned."""
    started = time.perf_counter()
    params: dict[str, Any] = {"do_remote_decode": True, "do_remote_prefill": False}
    params |= dict.fromkeys(("remote_engine_id", "remote_block_ids", "remote_host", "remote_port"))
    body = completion(prompt) | {"stream": False, "max_tokens": 1, "kv_transfer_params": params}
    answer = await asyncio.to_thread(prefill.post, body)
    before_ms = (time.perf_counter() - started) * 1e3
    handed = {"kv_transfer_params": answer["kv_transfer_params"]}
    sample = await fresh(client, completion(prompt) | handed)
    return replace(sample, ttft_ms=sample.ttft_ms + before_ms)


class Flows:
    """The three ways to an answer. vLLM's own servers are awake for their turn only, so each turn begins with
    a few tokens that are not counted: what has just slept is slow."""

    def __init__(self, stack: Stack, single: StockServer, pair: tuple[StockServer, StockServer]) -> None:
        self._single = single
        self._pair = pair
        self.ours = StreamClient("127.0.0.1", stack.port, "/v1/completions", stack.keys["plain"])
        self._plain = StreamClient("127.0.0.1", single.port, "/v1/completions", "none")
        self._stock = StreamClient("127.0.0.1", pair[1].port, "/v1/completions", "none")
        self.ways: dict[str, Callable[[list[int]], Awaitable[Sample]]] = {
            "ours": self.ask_ours,
            "single": self._ask_single,
            "stock": self._ask_stock,
        }

    async def ask_ours(self, prompt: list[int]) -> Sample:
        await fresh(self.ours, completion(prompt[:NUM_WAKING]))
        return await fresh(self.ours, completion(prompt, NUM_TOKENS))

    async def _ask_single(self, prompt: list[int]) -> Sample:
        with awake(self._single):
            await fresh(self._plain, completion(prompt[:NUM_WAKING]))
            return await fresh(self._plain, completion(prompt))

    async def _ask_stock(self, prompt: list[int]) -> Sample:
        with awake(*self._pair):
            await ask_stock(*self._pair, self._stock, prompt[:NUM_WAKING])
            return await ask_stock(*self._pair, self._stock, prompt)

    async def close(self) -> None:
        for client in (self.ours, self._plain, self._stock):
            await client.close()


async def measure(
    model: str, flows: Flows, prompts: Prompts, repeats: int, lengths: Sequence[int]
) -> dict[str, Any]:
    """The first round of each length warms up and is not counted."""
    rows: dict[str, Any] = {}
    names = list(flows.ways)
    for length in lengths:
        samples: dict[str, list[Sample]] = {name: [] for name in names}
        for number in range(1 + (repeats if length < LONG else max(3, repeats // 2))):
            turn = number % len(names)
            for name in (*names[turn:], *names[:turn]):
                samples[name].append(await flows.ways[name](prompts.make(length)))
        rows[str(length)] = summarise({name: found[1:] for name, found in samples.items()})
        show(model, length, rows[str(length)])
    rows["warm"] = await measure_warm(flows, prompts, max(3, repeats // 2))
    await flows.close()
    return rows


async def measure_warm(flows: Flows, prompts: Prompts, repeats: int) -> dict[str, Any]:
    shared = prompts.make(2_000)
    await flows.ask_ours(shared + prompts.make(20))
    warm, cold = [], []
    for _ in range(repeats):
        warm.append((await flows.ask_ours(shared + prompts.make(20))).ttft_ms)
        cold.append((await flows.ask_ours(prompts.make(2_020))).ttft_ms)
    return {"warm_ms": median(warm), "cold_ms": median(cold), "ratio": median(warm) / median(cold)}


def summarise(samples: dict[str, list[Sample]]) -> dict[str, Any]:
    row: dict[str, Any] = {
        name: {"ttft_ms": median(each.ttft_ms for each in found), "requests": len(found)}
        for name, found in samples.items()
    }
    gaps = [
        [b - a for a, b in zip(each.chunk_ms, each.chunk_ms[1:], strict=False)] for each in samples["ours"]
    ]
    row["ours"]["t2_ms"] = median(gap[0] for gap in gaps)
    row["ours"]["step_ms"] = median(later for gap in gaps for later in gap[1:])
    for other in ("single", "stock"):
        pairs = zip(samples["ours"], samples[other], strict=True)
        row[f"ours_to_{other}"] = median(mine.ttft_ms / theirs.ttft_ms for mine, theirs in pairs)
    pairs = zip(samples["ours"], samples["single"], strict=True)
    row["over_bound_ms"] = median(mine.ttft_ms - (1.1 * theirs.ttft_ms + 3) for mine, theirs in pairs)
    row["within_bound"] = row["over_bound_ms"] <= 0
    return row


def show(model: str, length: int, row: dict[str, Any]) -> None:
    times = "  ".join(f"{flow} {row[flow]['ttft_ms']:7.1f}" for flow in ("ours", "single", "stock"))
    print(
        f"{model:8} {length:>5} tokens  TTFT ms: {times}   ours/single {row['ours_to_single']:.2f}"
        f" ours/stock {row['ours_to_stock']:.2f}   over 1.1x + 3 ms by {row['over_bound_ms']:.1f} ms"
        f"   t1->t2 {row['ours']['t2_ms']:.1f} ms, a step {row['ours']['step_ms']:.1f} ms",
        flush=True,
    )


def show_warm(model: str, warm: dict[str, Any]) -> None:
    print(
        f"{model:8} warm 2,000-token prefix {warm['warm_ms']:.1f} ms, cold {warm['cold_ms']:.1f} ms: "
        f"{warm['ratio']:.2f}",
        flush=True,
    )


@contextlib.contextmanager
def servers(model: Path, directory: Path) -> Iterator[tuple[Stack, StockServer, StockServer, StockServer]]:
    """Prefill engines and the single one share a CPU, decode engines the other: only one works at a time.

    Ours, the single one, stock prefill, stock decode.
    """
    env = {f"SUB100_{role}_MAX_MODEL_LEN": str(MAX_MODEL_LEN) for role in ("PREFILL", "DECODE")}
    env |= {f"SUB100_{role}_COMPILE": "on" for role in ("PREFILL", "DECODE")}  # as vLLM's own servers
    with contextlib.ExitStack() as cleanup:

        def start(name: str, cpu: int, nixl_host: str = "") -> StockServer:
            server = StockServer(
                model, directory / name, cpu=cpu, max_model_len=MAX_MODEL_LEN, nixl_host=nixl_host
            )
            cleanup.callback(server.stop)
            return server

        single = start("single.log", 0)
        prefill, decode = start("p.log", 0, "127.0.0.1"), start("d.log", 1, "127.0.0.2")
        for server in (single, prefill, decode):
            server.up()
        stack = cleanup.enter_context(running_stack(model, engine="vllm", env=env))
        pin_engine(stack.replicas["prefill-1"].pid, 0)
        pin_engine(stack.replicas["decode-1"].pid, 1)
        yield stack, single, prefill, decode


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started ends with us
    parser = arguments(__doc__, "ttft-flows")
    parser.add_argument("--repeats", type=int, default=9, help="requests per flow and length")
    parser.add_argument("--model", type=Path, help="a second model directory, beside the tiny one")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="tokens of the prompts")
    parser.add_argument("--no-tiny", action="store_true", help="leave the tiny model out")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        models = {} if options.no_tiny else {"tiny": (make(Path(directory) / "tiny"), 4_000)}
        if options.model:
            models[options.model.name] = (options.model, 40_000)
        for name, (model, vocab_size) in models.items():
            with servers(model, Path(directory)) as (stack, single, *pair):
                flows = Flows(stack, single, (pair[0], pair[1]))
                results[name] = asyncio.run(
                    measure(name, flows, Prompts(vocab_size), options.repeats, options.lengths)
                )
            show_warm(name, results[name]["warm"])
    write(options.out, "TTFT of three flows in turn, real vLLM, one pinned thread per engine", models=results)


if __name__ == "__main__":
    main()

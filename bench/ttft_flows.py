"""``make bench-ttft``: the first token from prefill, against what else could be run.

Real vLLM, one pinned thread per engine, decode idle, flows interleaved request by request in one run:

- ``ours``: the whole system, HTTP to first content byte; the first token leaves from prefill.
- ``single``: ``vllm serve``, one plain engine.
- ``stock``: vLLM's NIXL pair: prefill with ``max_tokens=1``, then decode takes the KV and makes the first
  token again. The client plays the proxy, so no hop is charged for it. Left out where nixl is not installed.

``t2`` is the second token's gap, ``step`` the median of the later gaps. ``warm``: the same 2,000-token system
prompt again with another question, against cold ones, at ours.
"""

import argparse
import asyncio
import contextlib
import importlib.util
import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from tests.stack import Stack, running_stack

from sub100_local.tiny_model import make

from .client import Sample, StreamClient
from .results import write
from .stock_vllm import SERVED_NAME, StockServer, pin, stopped

LENGTHS = (64, 500, 2_000)
MAX_MODEL_LEN = 4_096
NUM_TOKENS = 8
RESULTS = Path(__file__).parent / "results" / "ttft-flows.json"


def completion(prompt: list[int]) -> dict[str, Any]:
    return {
        "model": SERVED_NAME,
        "prompt": prompt,
        "max_tokens": NUM_TOKENS,
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


async def measure(
    stack: Stack,
    single: StockServer,
    pair: tuple[StockServer, StockServer] | None,
    prompts: Prompts,
    repeats: int,
) -> dict[str, Any]:
    ours = StreamClient("127.0.0.1", stack.port, "/v1/completions", stack.keys["plain"])
    plain = StreamClient("127.0.0.1", single.port, "/v1/completions", "none")
    stock = StreamClient("127.0.0.1", pair[1].port, "/v1/completions", "none") if pair else None
    rows: dict[str, Any] = {}
    for length in LENGTHS:
        samples: dict[str, list[Sample]] = {"ours": [], "single": [], "stock": []}
        for number in range(repeats + 1):
            with stopped(*(pair or ())):
                turn = [("ours", ours), ("single", plain)]
                for name, client in turn if number % 2 else reversed(turn):
                    samples[name].append(await fresh(client, completion(prompts.make(length))))
            if pair is not None and stock is not None:
                with stopped(single):
                    samples["stock"].append(await ask_stock(*pair, stock, prompts.make(length)))
        rows[str(length)] = summarise({name: found[1:] for name, found in samples.items()})
    with stopped(*(pair or ())):
        rows["warm"] = await measure_warm(ours, prompts, repeats)
    for each in (ours, plain, stock):
        if each is not None:
            await each.close()
    return rows


async def measure_warm(client: StreamClient, prompts: Prompts, repeats: int) -> dict[str, Any]:
    shared = prompts.make(2_000)
    await client.ask(completion(shared + prompts.make(20)))
    warm, cold = [], []
    for _ in range(repeats):
        warm.append((await client.ask(completion(shared + prompts.make(20)))).ttft_ms)
        cold.append((await client.ask(completion(prompts.make(2_020)))).ttft_ms)
    return {"warm_ms": median(warm), "cold_ms": median(cold), "ratio": median(warm) / median(cold)}


def summarise(samples: dict[str, list[Sample]]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, found in samples.items():
        if found:
            row[name] = {"ttft_ms": median(each.ttft_ms for each in found), "requests": len(found)}
    gaps = [
        [b - a for a, b in zip(each.chunk_ms, each.chunk_ms[1:], strict=False)] for each in samples["ours"]
    ]
    row["ours"]["t2_ms"] = median(gap[0] for gap in gaps)
    row["ours"]["step_ms"] = median(later for gap in gaps for later in gap[1:])
    row["ours_to_single"] = row["ours"]["ttft_ms"] / row["single"]["ttft_ms"]
    row["within_bound"] = row["ours"]["ttft_ms"] <= 1.1 * row["single"]["ttft_ms"] + 3
    if "stock" in row:
        row["ours_to_stock"] = row["ours"]["ttft_ms"] / row["stock"]["ttft_ms"]
    return row


def show(name: str, rows: dict[str, Any]) -> None:
    for length in map(str, LENGTHS):
        row = rows[length]
        times = "  ".join(
            f"{flow} {row[flow]['ttft_ms']:7.1f}" for flow in ("ours", "single", "stock") if flow in row
        )
        print(
            f"{name:8} {length:>5} tokens  TTFT ms: {times}   ours/single {row['ours_to_single']:.2f}"
            f"{f' ours/stock {stock:.2f}' if (stock := row.get('ours_to_stock')) else ''}"
            f"   t1->t2 {row['ours']['t2_ms']:.1f} ms, a step {row['ours']['step_ms']:.1f} ms",
            flush=True,
        )
    warm = rows["warm"]
    print(
        f"{name:8} warm 2,000-token prefix {warm['warm_ms']:.1f} ms, cold {warm['cold_ms']:.1f} ms: "
        f"{warm['ratio']:.2f}"
    )


@contextlib.contextmanager
def servers(
    model: Path, directory: Path
) -> Iterator[tuple[Stack, StockServer, tuple[StockServer, StockServer] | None]]:
    """Prefill engines and the single one share a CPU, decode engines the other: only one works at a time."""
    env = {f"SUB100_{role}_MAX_MODEL_LEN": str(MAX_MODEL_LEN) for role in ("PREFILL", "DECODE")}
    has_nixl = importlib.util.find_spec("nixl") is not None
    with contextlib.ExitStack() as cleanup:
        stack = cleanup.enter_context(running_stack(model, engine="vllm", env=env))
        pin(stack.replicas["prefill-1"].pid, 0)
        pin(stack.replicas["decode-1"].pid, 1)

        def start(name: str, cpu: int, *, nixl: bool = False) -> StockServer:
            server = StockServer(model, directory / name, cpu=cpu, max_model_len=MAX_MODEL_LEN, nixl=nixl)
            cleanup.callback(server.stop)
            return server

        single = start("single.log", 0)
        pair = (start("p.log", 0, nixl=True), start("d.log", 1, nixl=True)) if has_nixl else None
        yield stack, single, pair


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7, help="requests per flow and length")
    parser.add_argument("--model", type=Path, help="a second model directory, beside the tiny one")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        models = {"tiny": (make(Path(directory) / "tiny"), 4_000)}
        if options.model:
            models[options.model.name] = (options.model, 40_000)
        for name, (model, vocab_size) in models.items():
            with servers(model, Path(directory)) as (stack, single, pair):
                results[name] = asyncio.run(
                    measure(stack, single, pair, Prompts(vocab_size), options.repeats)
                )
            show(name, results[name])
    write(options.out, "TTFT of three flows in turn, real vLLM, one pinned thread per engine", models=results)


if __name__ == "__main__":
    main()

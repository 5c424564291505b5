"""``make slo``: the promise itself, end to end on real vLLM.

A client 20 ms of round trip away, on a warm connection, asks short questions under a system prompt. Per tier
(exact hit, warm prefix, cold) the share of requests with the first content byte under 100 ms, client's
clock, WAN included; and the ledger of the worst. The tiny random model first, then SmolLM2 if it is given.
"""

import asyncio
import secrets
import tempfile
from pathlib import Path
from typing import Any

from tests.stack import Stack, running_stack

from sub100_local.tiny_model import make

from .client import Sample, StreamClient, quantile
from .results import arguments, write
from .wan import delayed

BUDGET_MS = 100.0
ROUND_TRIP_MS = 20.0
AS_SERVED = {f"SUB100_{role}_COMPILE": "on" for role in ("PREFILL", "DECODE")}
"""As a deployment would be that minds its steps more than its starts."""
SYSTEM = (
    "You are the assistant of a small hardware shop. Answer in one short sentence. Be friendly, never "
    "mention prices, and send people who ask about deliveries to the counter. The shop opens at nine and "
    "closes at six from Monday to Friday, and at noon on Saturdays."
)
QUESTIONS = (
    "When do you open?",
    "Do you sell nails?",
    "What is a spirit level?",
    "Can you cut keys?",
    "Are you open on Sunday?",
)


def ask(system: str, question: str) -> dict[str, Any]:
    return {
        "model": "test-model",
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": question}],
        "max_tokens": 8,
        "temperature": 0,
        "stream": True,
    }


REPEATED = ask(SYSTEM, QUESTIONS[0]) | {
    "structured_outputs": {"choice": ["We open at nine."]},
    "max_tokens": 64,
}
"""An answer that ends by itself, as only such answers are cached; a random model's own would not."""


async def measure(stack: Stack, num_each: int) -> dict[str, list[Sample]]:
    """Tiers interleaved, one request at a time: the promise is about latency, not load."""
    async with delayed(stack.port, ROUND_TRIP_MS) as port:
        keyed = {
            name: StreamClient("127.0.0.1", port, "/v1/chat/completions", key)
            for name, key in stack.keys.items()
        }
        caching, plain = keyed["demo"], keyed["plain"]
        await plain.ask(ask(SYSTEM, "Hello!"))
        samples: dict[str, list[Sample]] = {"hit": [], "warm": [], "cold": []}
        for number in range(num_each):
            if answered := await ask_cached(caching, REPEATED):
                samples["hit"].append(answered)
            question = f"{QUESTIONS[number % len(QUESTIONS)]} ({number})"
            samples["warm"].append(await plain.ask(ask(SYSTEM, question)))
            samples["cold"].append(await plain.ask(ask(f"{secrets.token_hex(8)} {SYSTEM}", question)))
        for client in keyed.values():
            await client.close()
        return samples


async def ask_cached(client: StreamClient, body: dict[str, Any]) -> Sample | None:
    """An exact hit, after filling the cache if need be; None if the answer does not enter it."""
    for _ in range(3):
        sample = await client.ask(body)
        if sample.tier == "cache_exact":
            return sample
        await asyncio.sleep(0.05)
    return None


def summarise(samples: dict[str, list[Sample]]) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for tier, of_tier in samples.items():
        if not of_tier:
            rows[tier] = {"requests": 0}
            continue
        times = [sample.ttft_ms for sample in of_tier]
        worst = max(of_tier, key=lambda sample: sample.ttft_ms)
        rows[tier] = {
            "requests": len(times),
            "share_under_budget": sum(ms < BUDGET_MS for ms in times) / len(times),
            "ttft_ms": {
                "p50": quantile(times, 0.5),
                "p95": quantile(times, 0.95),
                "p99": quantile(times, 0.99),
            },
            "worst": {"ttft_ms": worst.ttft_ms, "server_timing": worst.server_timing},
        }
    return rows


def print_rows(name: str, rows: dict[str, Any]) -> None:
    for tier, row in rows.items():
        if not row["requests"]:
            print(f"{name:10} {tier:5} nothing to measure")
            continue
        ttft = row["ttft_ms"]
        print(
            f"{name:10} {tier:5} under {BUDGET_MS:.0f} ms: {100 * row['share_under_budget']:5.1f} %   "
            f"TTFT p50 {ttft['p50']:6.1f} p95 {ttft['p95']:6.1f} p99 {ttft['p99']:6.1f} ms   worst "
            f"{row['worst']['ttft_ms']:.1f}: {row['worst']['server_timing']}",
            flush=True,
        )


def main() -> None:
    parser = arguments(__doc__, "slo")
    parser.add_argument("--requests", type=int, default=100, help="per tier")
    parser.add_argument("--model", type=Path, help="a second model directory, beside the tiny one")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        models = {"tiny": make(Path(directory) / "tiny")}
        if options.model:
            models[options.model.name] = options.model
        for name, model in models.items():
            with running_stack(model, engine="vllm", env=AS_SERVED) as stack:
                results[name] = summarise(asyncio.run(measure(stack, options.requests)))
            print_rows(name, results[name])
    what = f"first content byte at a client {ROUND_TRIP_MS:.0f} ms away (round trip), real vLLM"
    write(options.out, what, models=results)


if __name__ == "__main__":
    main()

"""``make bench-chunk``: what a long prompt costs the streams beside it, by chunk size, on real vLLM.

Eight streams run; a prompt of 2,048 tokens that no cache has comes in. For each chunk size (one engine each,
rounds in turns) the p99 of the gaps between the streams' tokens while the prompt is being computed, and the
prompt's own time to first token. The largest size computes it in one step: no chunking. Without the prompt
the same gaps are the yardstick.
"""

import asyncio
import contextlib
import random
import time
from pathlib import Path
from typing import Any

from sub100_engine.api import Engine

from .client import quantile
from .engines import Told, decode, running
from .results import arguments, write

NUM_STREAMS = 8
NUM_PROMPT = 2048
SIZES = (128, 512, NUM_PROMPT + NUM_STREAMS)
_TOO_LONG = 4000


def fresh_prompt(num_tokens: int) -> list[int]:
    chance = random.Random(time.time_ns())
    return [chance.randrange(100, 4000) for _ in range(num_tokens)]


async def with_prompt(engine: Engine) -> tuple[list[float], list[float], float]:
    """Gaps (ms) without and with a prompt beside the streams, and the prompt's time to first token."""
    attempts = [decode(engine, fresh_prompt(32), _TOO_LONG) for _ in range(NUM_STREAMS)]
    try:
        for told in attempts:
            await told.began()
        start_s = time.perf_counter()
        await asyncio.sleep(1.5)  # the yardstick's window: a duration, not a synchronisation
        long = decode(engine, fresh_prompt(NUM_PROMPT), 2)
        await long.began()
        for told in attempts:  # the gap that the last chunk made ends with each stream's next token
            seen = len(told.at_s)
            while len(told.at_s) == seen:  # noqa: ASYNC110
                await asyncio.sleep(0.002)
        return (
            gaps_within(attempts, start_s, long.started_s),
            gaps_within(attempts, long.started_s, time.perf_counter()),
            (long.at_s[0] - long.started_s) * 1e3,
        )
    finally:
        for told in attempts:
            told.abort()


def gaps_within(attempts: list[Told], start_s: float, end_s: float) -> list[float]:
    """Gaps that end between the two moments."""
    gaps: list[float] = []
    for told in attempts:
        gaps += [
            gap for at_s, gap in zip(told.at_s[1:], told.gaps_ms, strict=True) if start_s <= at_s <= end_s
        ]
    return gaps


async def measure(model: Path, rounds: int) -> dict[str, Any]:
    quiet: dict[int, list[float]] = {size: [] for size in SIZES}
    beside: dict[int, list[float]] = {size: [] for size in SIZES}
    firsts: dict[int, list[float]] = {size: [] for size in SIZES}
    async with contextlib.AsyncExitStack() as stack:
        engines = {
            size: await stack.enter_async_context(
                running(model, max_model_len=NUM_PROMPT + _TOO_LONG, max_chunk_tokens=size, kv_cache_mib=512)
            )
            for size in SIZES
        }
        for number in range(rounds):
            for size, engine in engines.items():
                without, with_it, ttft_ms = await with_prompt(engine)
                quiet[size] += without
                beside[size] += with_it
                firsts[size].append(ttft_ms)
            print(f"round {number + 1} of {rounds}", flush=True)
    whole = quantile(beside[SIZES[-1]], 0.99)
    return {
        str(size): {
            "p99_gap_ms": round(quantile(beside[size], 0.99), 1),
            "p99_gap_without_the_prompt_ms": round(quantile(quiet[size], 0.99), 1),
            "p99_gap_to_no_chunking": round(quantile(beside[size], 0.99) / whole, 3),
            "prompt_ttft_ms": round(quantile(firsts[size], 0.5), 1),
            "gaps": len(beside[size]),
        }
        for size in SIZES
    }


def main() -> None:
    parser = arguments(__doc__, "chunked-prefill")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    results = asyncio.run(measure(options.model, options.rounds))
    for size, row in results.items():
        print(f"chunk {size:>5}: {row}")
    what = f"gaps of {NUM_STREAMS} streams beside a prompt of {NUM_PROMPT} tokens, by chunk size, one thread"
    write(options.out, what, model=options.model.name, max_chunk_tokens=results)


if __name__ == "__main__":
    main()

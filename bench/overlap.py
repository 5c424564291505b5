"""What a look-up costs a miss, and what a dispatch beside it costs a hit, at one stream.

One client asks in turns, request by request, so that a noisy moment hits all kinds alike: ``plain``, a tenant
without cache; ``miss`` of a tenant that only misses (the look-up runs beside the dispatch) and of one that
mostly hits (the look-up goes first for a moment); ``hit`` of both. Exact tier on a real Redis, an engine that
takes a GPU's time. ``added`` is the median of pairwise differences to the plain request just before.
"""

import asyncio
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvloop
from tests.stack import Stack, running_stack

from sub100_local.tiny_model import make

from .client import Sample, StreamClient, median, quantile
from .results import arguments, write

HITS_PER_MISS = 4
MISSES_PER_HIT = 12
SHORT_ANSWERS = {"SUB100_SIM_ANSWER_MAX_TOKENS": "8"}
NAMES = ("plain", "miss beside", "hit beside", "plain again", "miss after a lead", "hit after a lead")


def bodies(name: str) -> Iterator[dict[str, Any]]:
    """Questions that nobody has asked; answers end by themselves, so that they may be kept."""
    for number in itertools.count():
        yield {
            "model": "test-model",
            "messages": [
                {"role": "user", "content": f"{name} question number {number}: how is the weather?"}
            ],
            "temperature": 0,
            "max_tokens": 400,
            "stream": True,
        }


async def kept(client: StreamClient, questions: Iterator[dict[str, Any]]) -> dict[str, Any]:
    """A question that is in the cache."""
    question = next(questions)
    async with asyncio.timeout(10):
        while not (await client.ask(question)).tier.startswith("cache"):
            pass
    return question


async def measure(stack: Stack, rounds: int) -> dict[str, list[Sample]]:
    plain = StreamClient("127.0.0.1", stack.port, "/v1/chat/completions", stack.keys["plain"])
    asker = StreamClient("127.0.0.1", stack.port, "/v1/chat/completions", stack.keys["demo"])
    rows: dict[str, list[Sample]] = {name: [] for name in NAMES}
    asked, unasked = bodies("asked"), bodies("plain")
    found = await kept(asker, asked)
    for _ in range(50):
        await plain.ask(next(unasked))
        await asker.ask(next(asked))
    for _ in range(rounds):  # the tenant hits so seldom that nothing waits for its look-ups
        for _ in range(MISSES_PER_HIT):
            rows["plain"].append(await plain.ask(next(unasked)))
            rows["miss beside"].append(await asker.ask(next(asked)))
        rows["hit beside"].append(await asker.ask(found))
    for _ in range(50):
        await asker.ask(found)
    for _ in range(rounds):
        rows["plain again"].append(await plain.ask(next(unasked)))
        rows["miss after a lead"].append(await asker.ask(next(asked)))
        for _ in range(HITS_PER_MISS):
            rows["hit after a lead"].append(await asker.ask(found))
    await plain.close()
    await asker.close()
    return rows


def figures(samples: list[Sample]) -> dict[str, Any]:
    ttft = [sample.ttft_ms for sample in samples]
    num_hits = sum(sample.tier.startswith("cache") for sample in samples)
    quantiles = {name: quantile(ttft, q) for name, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))}
    return {"requests": len(samples), "hits": num_hits, "ttft_ms": quantiles}


def added_ms(plain: list[Sample], misses: list[Sample]) -> float:
    return median([miss.ttft_ms - base.ttft_ms for base, miss in zip(plain, misses, strict=True)])


def main() -> None:
    parser = arguments(__doc__, "overlap")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--timing", default="h200-8b")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        model = make(Path(directory) / "tiny")
        with running_stack(model, timing=options.timing, env=SHORT_ANSWERS) as stack:
            rows = uvloop.run(measure(stack, options.rounds))
    for name, samples in rows.items():
        found = figures(samples)
        ttft = found["ttft_ms"]
        print(
            f"{name:<18} {found['requests']:>5} requests, {found['hits']:>5} hits"
            f"  TTFT p50 {ttft['p50']:6.2f}  p90 {ttft['p90']:6.2f}  p99 {ttft['p99']:6.2f} ms"
        )
    added = {
        "beside": added_ms(rows["plain"], rows["miss beside"]),
        "after a lead": added_ms(rows["plain again"], rows["miss after a lead"]),
    }
    print("added to a miss, p50: " + ", ".join(f"{name} {ms:.2f} ms" for name, ms in added.items()))
    write(
        options.out,
        f"look-up beside or before the dispatch, exact tier, engine {options.timing}",
        added_to_a_miss_p50_ms=added,
        rows={name: figures(samples) for name, samples in rows.items()},
    )


if __name__ == "__main__":
    main()

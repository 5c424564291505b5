"""``make bench-spec``: what n-gram speculation gains, on real vLLM.

Two engines of one model, one with speculation and one without, answer the same prompts greedily in turns:
texts to be repeated (edits, extraction and code look like that) and open questions, one at a time and four
at once. Ratios of tokens a second, the share of drafts accepted, the mean accepted length.
"""

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec
from tokenizers import Tokenizer

from sub100_engine.api import Engine

from .engines import decode, running
from .results import arguments, write

NUM_TOKENS = 64
TEXTS = (
    "The nearest region answers first, and the rest of the fleet never hears of it.",
    "A short prompt fits into one block, while a long one is computed in chunks beside the others.",
    "When a worker is lost, another one goes on with the very next token of the answer.",
    "Caches remember what was asked before; queues are short because they are bounded.",
)
QUESTIONS = (
    "Why is the sky blue?",
    "How does a bicycle stay upright?",
    "What is a good name for a cat?",
    "Tell me about the history of bread.",
)


def repetitive(text: str) -> str:
    return f"Repeat this text five times, word for word:\n{text}\n{text}\n{text}"


class Tally(msgspec.Struct):
    """Of one engine and kind of prompt."""

    seconds: float = 0.0
    num_tokens: int = 0
    num_drafted: int = 0
    num_accepted: int = 0
    answers: list[list[int]] = msgspec.field(default_factory=list)

    @property
    def tokens_per_s(self) -> float:
        return self.num_tokens / self.seconds


async def answer(engine: Engine, prompts: list[list[int]], at_once: int, tally: Tally) -> None:
    """All prompts, ``at_once`` of them at a time."""
    for start in range(0, len(prompts), at_once):
        begun_s = time.perf_counter()
        told = [decode(engine, prompt, NUM_TOKENS) for prompt in prompts[start : start + at_once]]
        for one in told:
            last = await one.over()
            tally.num_drafted += last.num_drafted
            tally.num_accepted += last.num_accepted
            tally.num_tokens += len(one.ids)
            tally.answers.append(one.ids)
        tally.seconds += time.perf_counter() - begun_s


async def compare(
    plain: Engine, speculating: Engine, prompts: list[list[int]], at_once: int, rounds: int
) -> dict[str, Any]:
    """In turns, so that whatever else the machine does hits both."""
    tallies = {"plain": Tally(), "speculating": Tally()}
    for _ in range(rounds):
        await answer(plain, prompts, at_once, tallies["plain"])
        before = speculating.load()
        await answer(speculating, prompts, at_once, tallies["speculating"])
        after = speculating.load()
    ours, theirs = tallies["speculating"], tallies["plain"]
    num_drafts = after.num_drafts - before.num_drafts
    equal = sum(a == b for a, b in zip(ours.answers, theirs.answers, strict=True))
    return {
        "speed_up": round(ours.tokens_per_s / theirs.tokens_per_s, 2),
        "tokens_per_s": {name: round(tally.tokens_per_s, 1) for name, tally in tallies.items()},
        "acceptance": round(ours.num_accepted / max(1, ours.num_drafted), 3),
        "mean_accepted_length": round(
            (after.num_accepted_tokens - before.num_accepted_tokens) / max(1, num_drafts), 2
        ),
        "steps_saved": round(ours.num_tokens / (ours.num_tokens - ours.num_accepted), 2),
        "equal_answers": f"{equal} of {len(ours.answers)}",
    }


async def measure(model: Path, rounds: int) -> dict[str, Any]:
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    kinds = {"repetitive": [repetitive(text) for text in TEXTS], "open": list(QUESTIONS)}
    results: dict[str, Any] = {}
    async with (
        running(model, max_model_len=2048) as plain,
        running(model, max_model_len=2048, speculative_method="ngram") as speculating,
    ):
        for kind, texts in kinds.items():
            chats = [f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n" for text in texts]
            prompts = [tokenizer.encode(chat, add_special_tokens=False).ids for chat in chats]
            for engine in (plain, speculating):
                await answer(engine, prompts, 4, Tally())  # warm prefixes: decoding is measured
            for at_once in (1, 4):
                name = f"{kind}, {at_once} at once"
                results[name] = await compare(plain, speculating, prompts, at_once, rounds)
                print(f"{name:24} {results[name]}", flush=True)
    return results


def main() -> None:
    parser = arguments(__doc__, "speculative")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    results = asyncio.run(measure(options.model, options.rounds))
    what = f"greedy answers of {NUM_TOKENS} tokens with n-gram speculation and without, real vLLM, one thread"
    write(options.out, what, model=options.model.name, results=results)


if __name__ == "__main__":
    main()

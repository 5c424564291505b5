"""Greedy answers over a hand-over are one engine's, token for token: at every block edge, with decode caches
cold, partly and fully warm, alone and sixteen at a time. On float32: in bfloat16 near ties flip with the
chunking, on a single engine too."""

import asyncio
import itertools
from typing import Any

import pytest
from tests.contract.engine_rig import Rig

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]

BLOCK = 32
LENGTHS = (1, BLOCK - 1, BLOCK, BLOCK + 1, 500, 2048)
WARMTHS = ("cold", "partly", "fully")
GREEDY: dict[str, Any] = {"max_tokens": 24, "ignore_eos": True}
NUM_AT_ONCE = 16
NUM_PROMPTS = 100


async def warm(rig: Rig, prompt: list[int], warmth: str) -> None:
    """Decode has computed nothing, the first half, or all of the prompt before."""
    num_tokens = {"cold": 0, "partly": len(prompt) // 2, "fully": len(prompt)}[warmth]
    if num_tokens:
        await rig.decoded(rig.work(prompt[:num_tokens], max_tokens=1))


async def answered(rig: Rig, prompt: list[int]) -> tuple[list[int], int, int]:
    """The answer over a hand-over, and the prompt's tokens that decode had and took."""
    first, kv = await rig.handed_over(prompt, **GREEDY)
    rest = await rig.decoded(rig.work(prompt, output=[first], kv=kv, **GREEDY))
    assert rest.last.error == "", rest.last
    return [first, *rest.ids], rest.outputs[0].cached_tokens, rest.outputs[0].transferred_tokens


@pytest.mark.parametrize("warmth", WARMTHS)
@pytest.mark.parametrize("num_tokens", LENGTHS)
async def test_answer_equals_one_engines(rig: Rig, num_tokens: int, warmth: str) -> None:
    assert rig.prefill_info.block_size == BLOCK
    prompt = rig.prompt(num_tokens)
    await warm(rig, prompt, warmth)
    answer, num_had, num_taken = await answered(rig, prompt)
    assert answer == await rig.expected(prompt, **GREEDY)
    assert num_had + num_taken == num_tokens
    share = {"cold": 0, "partly": num_tokens // 2, "fully": num_tokens}[warmth]
    assert num_had == share // BLOCK * BLOCK


@pytest.mark.parametrize("warmth", WARMTHS)
async def test_answers_equal_one_engines_sixteen_at_a_time(rig: Rig, warmth: str) -> None:
    prompts = [rig.prompt(n) for n in itertools.islice(itertools.cycle(LENGTHS), NUM_AT_ONCE)]
    for prompt in prompts:
        await warm(rig, prompt, warmth)
    answers = await asyncio.gather(*(answered(rig, prompt) for prompt in prompts))
    for prompt, (answer, _, _) in zip(prompts, answers, strict=True):
        assert answer == await rig.expected(prompt, **GREEDY), len(prompt)
    await rig.idle(rig.prefill)
    await rig.idle(rig.decode)


@pytest.mark.long
async def test_hundred_prompts_of_many_lengths_get_a_combined_workers_answers(rig: Rig) -> None:
    """P05: four at a time, every length around the first blocks' edges and then up to most of the context."""
    lengths = [*range(1, 2 * BLOCK + 3), *range(100, 3_900, 3_800 // (NUM_PROMPTS - 2 * BLOCK - 2))][
        :NUM_PROMPTS
    ]
    assert len(lengths) == NUM_PROMPTS
    for some in (lengths[start : start + 4] for start in range(0, NUM_PROMPTS, 4)):
        prompts = [rig.prompt(num_tokens) for num_tokens in some]
        answers = await asyncio.gather(*(answered(rig, prompt) for prompt in prompts))
        for prompt, (answer, _, _) in zip(prompts, answers, strict=True):
            assert answer == await rig.expected(prompt, **GREEDY), len(prompt)

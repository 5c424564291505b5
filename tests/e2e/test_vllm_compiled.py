"""The hand-over between compiled engines, as on GPUs; the other suites leave the compiler out, because
each engine's start takes longer with it."""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import pytest_asyncio
from tests.contract.engine_rig import Rig
from tests.e2e.conftest import KEY, running_rig

from sub100_engine.settings import Speculation

if TYPE_CHECKING:
    from sub100_engine.vllm.config import VllmConfig

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.long,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
    pytest.mark.timeout(600),
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def compiled(vllm_config: "VllmConfig", tiny_llama: Path) -> AsyncIterator[Rig]:
    async with running_rig(msgspec.structs.replace(vllm_config, compile="on"), tiny_llama) as running:
        assert running.prefill_info.is_compiled
        yield running


@pytest.mark.parametrize(
    "sampling",
    [{}, {"temperature": 1.0, "seed": 5}, {"frequency_penalty": 1.0}, {"logit_bias": {300: 5.0}}],
    ids=["greedy", "seeded", "penalty", "biased"],
)
async def test_answers_of_compiled_engines_are_those_of_one(compiled: Rig, sampling: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"max_tokens": 24, "ignore_eos": True, **sampling}
    for num_tokens in (1, 31, 32, 33, 500, 1500):
        prompt = compiled.prompt(num_tokens)
        first, kv = await compiled.handed_over(prompt, **fields)
        rest = await compiled.decoded(compiled.work(prompt, output=[first], kv=kv, **fields))
        assert rest.last.error == "", rest.last
        assert [first, *rest.ids] == await compiled.expected(prompt, **fields), num_tokens


async def test_first_log_probabilities_stall_nobody(compiled: Rig) -> None:
    """vLLM compiles what counts ranks on its first call: six seconds in which every stream stood still."""
    started_s = time.monotonic()
    told = await compiled.decoded(compiled.work(compiled.prompt(20), logprobs=5, ignore_eos=True))
    assert len(told.ids) == 12
    assert time.monotonic() - started_s < 3


async def test_compiled_engine_speculates(compiled: Rig, vllm_config: "VllmConfig", tiny_llama: Path) -> None:
    from sub100_engine.vllm.engine import VllmEngine

    drafts = Speculation(method="ngram", lookup_min=1)
    engine = VllmEngine(msgspec.structs.replace(vllm_config, compile="on", speculation=drafts), KEY)
    try:
        await engine.start(lambda _: None)
        for num_tokens in (31, 33, 200):
            prompt = compiled.prompt(num_tokens)
            fields: dict[str, Any] = {"max_tokens": 100, "ignore_eos": True}
            told = await compiled.decoded(compiled.work(prompt, **fields), engine)
            assert told.last.num_drafted > 0
            assert told.ids == await compiled.expected(prompt, **fields)
    finally:
        await engine.stop()

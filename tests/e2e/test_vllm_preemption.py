"""Answers that were handed over to an engine with too little room for all of them: those that are preempted
are computed again in their turn, and are those of one engine all the same."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import pytest_asyncio

pytest.register_assert_rewrite("tests.contract.engine_suite")

from tests.contract.engine_rig import Recorder, Rig  # noqa: E402
from tests.e2e.conftest import KEY  # noqa: E402

if TYPE_CHECKING:
    from sub100_engine.vllm.config import VllmConfig

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]

NUM_BLOCKS = 24
NUM_PROMPT = 60
NUM_OUTPUT = 150
"""Of six answers at once: 42 blocks in the end."""

SAMPLINGS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 1.0, "seed": 11},
    {"temperature": 0.8, "seed": 7, "top_p": 0.9, "top_k": 50},
    {"presence_penalty": 1.5, "frequency_penalty": 0.5},
    {"repetition_penalty": 1.3},
    {"temperature": 1.0, "seed": 5, "frequency_penalty": 1.0},
)


@pytest_asyncio.fixture(loop_scope="session")
async def narrow(rig: Rig, vllm_config: "VllmConfig") -> AsyncIterator[Rig]:
    """The rig with a decode engine of few blocks."""
    from sub100_engine.vllm.engine import VllmEngine

    with tempfile.TemporaryDirectory(prefix="s100-") as runtime_dir:
        config = msgspec.structs.replace(
            vllm_config,
            max_model_len=512,
            kv_cache_bytes=vllm_config.kv_cache_bytes // rig.prefill_info.num_blocks * NUM_BLOCKS,
            runtime_dir=runtime_dir,
        )
        engine = VllmEngine(config, KEY)
        info = await engine.start(lambda _: None)
        assert info.num_blocks <= NUM_BLOCKS
        yield msgspec.structs.replace(rig, decode=engine)
        await engine.stop()


async def test_answers_that_are_preempted_after_a_hand_over_are_those_of_one_engine(narrow: Rig) -> None:
    rig = narrow
    sampling = [{"max_tokens": NUM_OUTPUT, "ignore_eos": True, **each} for each in SAMPLINGS]
    prompts = [rig.prompt(NUM_PROMPT) for _ in sampling]
    handed_over = [await rig.handed_over(p, **s) for p, s in zip(prompts, sampling, strict=True)]
    told: list[Recorder] = []
    for prompt, fields, (first, kv) in zip(prompts, sampling, handed_over, strict=True):
        told.append(Recorder(rig.work(prompt, output=[first], kv=kv, **fields)))
        rig.decode.decode(told[-1].work, told[-1])
    await rig.until(lambda: all(each.outputs for each in told))
    await rig.until(lambda: rig.decode.load().num_waiting > 0)  # what had begun waits again
    await asyncio.gather(*(rig.ended(each) for each in told))
    assert [each.last.error for each in told] == [""] * len(told)
    for prompt, fields, (first, _), each in zip(prompts, sampling, handed_over, told, strict=True):
        assert [first, *each.ids] == await rig.expected(prompt, **fields)
        assert each.outputs[0].transferred_tokens == NUM_PROMPT
    await rig.idle(rig.decode)
    await rig.idle(rig.prefill)

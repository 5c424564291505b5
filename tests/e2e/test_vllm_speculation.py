"""Speculative decoding on vLLM: the suite for every engine, by n-gram, draft model and EAGLE head, and what
only vLLM has: penalties that must see drafts, and the rejection sampler that we mend."""

import contextlib
import json
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import pytest_asyncio

pytest.register_assert_rewrite("tests.contract.engine_suite", "tests.contract.speculation_suite")

from tests.contract.answer_shapes import assert_same_rows, json_schema, rows  # noqa: E402
from tests.contract.engine_rig import Rig  # noqa: E402
from tests.contract.speculation_suite import SpeculationBehaviour, num_kept  # noqa: E402
from tests.e2e.conftest import KEY  # noqa: E402
from tests.e2e.eagle_head import make_eagle_head  # noqa: E402
from tests.e2e.worse_twin import make_worse_twin  # noqa: E402

from sub100_engine.settings import Speculation, SpeculativeMethod  # noqa: E402

if TYPE_CHECKING:
    from sub100_engine.vllm.config import VllmConfig

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def ngram(rig: Rig, vllm_config: "VllmConfig") -> AsyncIterator[Rig]:
    """The plain rig, but decode looks n-grams up; nothing else is needed."""
    from sub100_engine.vllm.engine import VllmEngine

    config = msgspec.structs.replace(vllm_config, speculation=Speculation(method="ngram", lookup_min=1))
    engine = VllmEngine(config, KEY)
    info = await engine.start(lambda _: None)
    assert info.layout == rig.prefill_info.layout
    yield msgspec.structs.replace(rig, decode=engine)
    await engine.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def speculating(
    rig: Rig, vllm_config: "VllmConfig", tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Rig]:
    """Prefill and decode with a draft model, whose KV moves with the hand-over."""
    twin = make_worse_twin(tiny_llama, tmp_path_factory.mktemp("draft") / "twin")
    async with drafting(rig, vllm_config, "draft_model", twin) as drafting_rig:
        yield drafting_rig


@contextlib.asynccontextmanager
async def drafting(
    rig: Rig, vllm_config: "VllmConfig", method: SpeculativeMethod, drafter: Path
) -> AsyncIterator[Rig]:
    from sub100_engine.vllm.engine import VllmEngine

    drafts = Speculation(method=method, num_tokens=3, model=str(drafter))
    config = msgspec.structs.replace(vllm_config, speculation=drafts)
    async with contextlib.AsyncExitStack() as stack:
        engines = [VllmEngine(config, KEY) for _ in range(2)]
        infos = []
        for engine in engines:
            infos.append(await engine.start(lambda _: None))
            stack.push_async_callback(engine.stop)
        yield msgspec.structs.replace(rig, prefill=engines[0], decode=engines[1], prefill_info=infos[0])


class TestVllmDraftModel(SpeculationBehaviour):
    pass


async def test_drafter_finds_the_kv_that_was_handed_over(speculating: Rig) -> None:
    """Without it, drafts after a hand-over would be much worse than those of an engine that prefilled."""
    rig = speculating
    fields: dict[str, Any] = {"max_tokens": 64, "ignore_eos": True}
    shares = []
    for is_alone in (False, True):
        accepted = drafted = 0
        for _ in range(4):
            prompt = rig.prompt(300)
            first, kv = await rig.handed_over(prompt, **fields)
            told = await rig.decoded(
                rig.work(prompt, **fields) if is_alone else rig.work(prompt, output=[first], kv=kv, **fields)
            )
            accepted += told.last.num_accepted
            drafted += told.last.num_drafted
        shares.append(accepted / drafted)
    assert shares[0] > 0.8 * shares[1] > 0


# -- EAGLE


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def eagle(
    rig: Rig, vllm_config: "VllmConfig", tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Rig]:
    head = make_eagle_head(tiny_llama, tmp_path_factory.mktemp("eagle") / "head")
    async with drafting(rig, vllm_config, "eagle", head) as drafting_rig:
        yield drafting_rig


@pytest.mark.parametrize("num_tokens", [1, 31, 32, 33, 500])
async def test_eagle_keeps_greedy_answers(eagle: Rig, num_tokens: int) -> None:
    """Its drafts are nearly all wrong here."""
    prompt = eagle.prompt(num_tokens)
    fields: dict[str, Any] = {"max_tokens": 100, "ignore_eos": True}
    first, kv = await eagle.handed_over(prompt, **fields)
    rest = await eagle.decoded(eagle.work(prompt, output=[first], kv=kv, **fields))
    assert [first, *rest.ids] == await eagle.expected(prompt, **fields)
    assert rest.last.num_drafted > rest.last.num_accepted


@pytest.mark.parametrize("k", [1, 20])
async def test_eagle_keeps_answers_in_which_its_drafts_are_right(eagle: Rig, k: int) -> None:
    """This penalty makes the model repeat itself."""
    prompt = eagle.prompt(70)
    fields: dict[str, Any] = {"max_tokens": 100, "ignore_eos": True, "frequency_penalty": -2.0}
    expected = await eagle.expected(prompt, **fields)
    _, kv = await eagle.handed_over(prompt, **fields)
    rest = await eagle.decoded(eagle.work(prompt, output=expected[:k], kv=kv, **fields))
    assert [*expected[:k], *rest.ids] == expected
    assert rest.last.num_accepted > 0


# -- n-gram


@pytest.mark.parametrize("num_tokens", [1, 31, 32, 33, 500])
async def test_ngram_keeps_greedy_answers(ngram: Rig, num_tokens: int) -> None:
    prompt = ngram.prompt(num_tokens)
    fields: dict[str, Any] = {"max_tokens": 200, "ignore_eos": True}
    first, kv = await ngram.handed_over(prompt, **fields)
    rest = await ngram.decoded(ngram.work(prompt, output=[first], kv=kv, **fields))
    assert [first, *rest.ids] == await ngram.expected(prompt, **fields)
    assert rest.last.num_drafted > 0


@pytest.mark.parametrize("k", [1, 20])
@pytest.mark.parametrize(
    "sampling",
    [{"frequency_penalty": -2.0}, {"repetition_penalty": 0.4}, {"presence_penalty": -2.0}],
    ids=lambda sampling: "-".join(sampling),
)
async def test_ngram_drafts_count_as_output_for_penalties(
    ngram: Rig, sampling: dict[str, Any], k: int
) -> None:
    """These penalties make the model repeat itself, so that drafts are right."""
    fields: dict[str, Any] = {"max_tokens": 96, "ignore_eos": True, **sampling}
    prompt = ngram.prompt(40)
    answer = await ngram.expected(prompt, **fields)
    _, kv = await ngram.handed_over(prompt, **fields)
    rest = await ngram.decoded(ngram.work(prompt, output=answer[:k], kv=kv, **fields))
    assert rest.ids == answer[k:]
    assert num_kept(rest) > 0


async def test_ngram_first_step_after_a_handover_verifies_no_placeholder(ngram: Rig) -> None:
    prompt = ngram.prompt(40)
    first, kv = await ngram.handed_over(prompt)
    before = ngram.decode.load()
    rest = await ngram.decoded(ngram.work(prompt, output=[first], kv=kv, max_tokens=2, ignore_eos=True))
    assert len(rest.ids) == 1
    assert ngram.decode.load().num_drafted_tokens == before.num_drafted_tokens


# -- the rejection sampler


async def test_ngram_keeps_json_and_log_probabilities_wherever_the_answer_is_taken_up(ngram: Rig) -> None:
    """Drafts pass the grammar that has consumed the output so far; rows are those of one plain engine."""
    ways = {"type": "array", "items": {"enum": ["north", "east"]}, "minItems": 8, "maxItems": 8}
    shape = json_schema({"properties": {"way": ways}, "required": ["way"], "additionalProperties": False})
    fields: dict[str, Any] = {**shape, "logprobs": 2, "max_tokens": 200}
    prompt = ngram.prompt(40)
    whole = await ngram.decoded(ngram.work(prompt, **fields), ngram.reference)
    assert len(json.loads(ngram.text(whole.ids))["way"]) == 8
    first, kv = await ngram.handed_over(prompt, **fields)
    rest = await ngram.decoded(ngram.work(prompt, output=[first], kv=kv, **fields))
    assert [first, *rest.ids] == whole.ids
    assert_same_rows(rows(rest), rows(whole)[1:])
    assert rest.last.num_accepted > 0
    for k in range(1, len(whole.ids)):
        rest = await ngram.decoded(ngram.work(prompt, output=whole.ids[:k], **fields))
        assert whole.ids[:k] + rest.ids == whole.ids, k
        assert_same_rows(rows(rest), rows(whole)[k:])


async def test_min_p_keeps_unlikely_tokens_out_of_a_warm_answer(ngram: Rig) -> None:
    """Of every token that came, draft or not: at temperature T its log probability is within T log(min_p) of
    the likeliest one's. A warm answer without ``min_p`` breaks that, so the bound says something."""
    fields: dict[str, Any] = {"temperature": 1.5, "max_tokens": 200, "ignore_eos": True, "logprobs": 1}
    gaps = []
    for min_p in (0.5, 0.0):
        told = await ngram.decoded(ngram.work(ngram.prompt(20), min_p=min_p, **fields))
        assert told.last.num_drafted > 0
        gaps.append(max(row.top[0][1] - row.logprob for row in rows(told)))
    bound = -1.5 * math.log(0.5)
    assert gaps[0] <= bound + 1e-3 < gaps[1]


def test_draft_positions_are_biased_by_their_own_request_alone() -> None:
    import torch

    from sub100_engine.vllm.draft_bias_patch import add_bias, drop_unlikely

    logits = torch.zeros(4, 3)
    add_bias(logits, {0: {1: 2.0}, 1: {2: 9.0}, 2: {0: -1.0}}, [1, 0, 3])
    assert logits.tolist() == [[0, 2, 0], [-1, 0, 0], [-1, 0, 0], [-1, 0, 0]]
    low = torch.tensor([[0.0, 1.0, 2.0]]).repeat(3, 1)
    drop_unlikely(low, torch.tensor([0.0, 0.5]), torch.tensor([1.0, 1.0]), torch.tensor([1, 3]))
    kept = [[x > -math.inf for x in row] for row in low.tolist()]
    assert kept == [[True, True, True], [False, False, True], [False, False, True]]
    warm = torch.tensor([[0.0, 1.0, 2.0]])
    drop_unlikely(warm, torch.tensor([0.5]), torch.tensor([2.0]), torch.tensor([1]))
    assert [x > -math.inf for x in warm.tolist()[0]] == [False, True, True]


def test_expand_batch_to_tokens_repeats_each_value_for_its_drafts() -> None:
    import torch

    from sub100_engine.vllm.rejection_patch import expand_batch_to_tokens

    totals = torch.tensor([2, 2, 5], dtype=torch.int32)
    expanded = expand_batch_to_tokens(torch.tensor([0.5, 9.0, 0.0]), totals, 0, 1)
    assert expanded.tolist() == [0.5, 0.5, 1.0, 1.0, 1.0]

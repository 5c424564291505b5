"""The behaviour suite and the hand-over's own promises on vLLM again, with NIXL moving the bytes."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
import pytest_asyncio

pytest.register_assert_rewrite("tests.contract.engine_suite")

from tests.contract.engine_rig import Recorder, Rig  # noqa: E402
from tests.contract.engine_suite import EngineBehaviour  # noqa: E402
from tests.e2e.conftest import running_rig  # noqa: E402
from tests.e2e.test_vllm_engine import (  # noqa: E402, F401
    lone,
    short_dir,
    test_abort_before_the_pull_frees_both_sides,
    test_abort_of_a_running_prefill_leaves_no_lease,
    test_handover_keeps_sampling_after_k_tokens,
    test_killed_adapter_takes_its_core_along_and_is_swept,
    test_lease_that_ends_frees_the_blocks_and_is_expired,
    test_only_blocks_that_decode_has_not_are_pulled,
    test_prompt_that_decode_has_whole_lets_the_producer_go,
    test_puller_with_another_secret_gets_nothing,
    test_stop_does_not_wait_for_kv_that_nobody_pulls,
    test_vllm_counts_no_computed_prompt_token_on_decode,
)
from tests.e2e.test_vllm_kv_waits import (  # noqa: E402, F401
    test_aborts_in_mid_transfer_damage_no_other_answer,
    test_core_rests_while_its_kv_waits_to_be_pulled,
    test_resting_core_hears_of_a_pull_and_of_a_prompt_at_once,
)
from tests.kv_proxy import proxied  # noqa: E402

from sub100_engine.vllm.environment import interface_of  # noqa: E402
from sub100_engine.vllm.puller import NIXL_CONNECTOR  # noqa: E402

if TYPE_CHECKING:
    from sub100_engine.vllm.config import VllmConfig

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]


@pytest.fixture(scope="session")
def vllm_config(vllm_config: "VllmConfig") -> "VllmConfig":
    return msgspec.structs.replace(vllm_config, kv_transport="nixl")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def rig(vllm_config: "VllmConfig", tiny_llama: Path) -> AsyncIterator[Rig]:
    async with running_rig(vllm_config, tiny_llama) as running:
        yield running


class TestVllmEngineWithNixl(EngineBehaviour):
    pass


@pytest.mark.parametrize("num_tokens", [1, 31, 32, 33, 500, 2048])
async def test_handover_equals_one_engine(rig: Rig, num_tokens: int) -> None:
    prompt = rig.prompt(num_tokens)
    first, kv = await rig.handed_over(prompt, max_tokens=24, ignore_eos=True)
    assert kv.connector == NIXL_CONNECTOR
    rest = await rig.decoded(rig.work(prompt, output=[first], kv=kv, max_tokens=24, ignore_eos=True))
    assert [first, *rest.ids] == await rig.expected(prompt, max_tokens=24, ignore_eos=True)
    assert rest.outputs[0].transferred_tokens == num_tokens


async def test_control_connection_that_is_cut_fails_that_attempt_alone(rig: Rig) -> None:
    prompt = rig.prompt(100)
    first, kv = await rig.handed_over(prompt)
    with proxied(kv, cut_at=300) as handle:
        told = await rig.decoded(rig.work(prompt, output=[first], kv=handle))
    assert (told.last.error, told.ids) == ("kv_load_failed", [])
    again = await rig.decoded(rig.work(prompt, output=[first], kv=kv))
    assert [first, *again.ids] == await rig.expected(prompt)


async def test_kv_of_an_engine_without_nixl_is_refused(rig: Rig) -> None:
    prompt = rig.prompt(40)
    first, kv = await rig.handed_over(prompt)
    foreign = msgspec.structs.replace(kv, connector="sub100-pull-1")
    told = await rig.decoded(rig.work(prompt, output=[first], kv=foreign))
    assert (told.last.error, told.ids) == ("kv_load_failed", [])
    rig.prefill.release(kv)
    await rig.idle(rig.prefill)


async def test_streams_go_on_while_kv_comes(rig: Rig) -> None:
    prompt = rig.prompt(2048)
    first, kv = await rig.handed_over(prompt)
    stream = Recorder(rig.work(rig.prompt(20), max_tokens=400, ignore_eos=True))
    rig.decode.decode(stream.work, stream)
    await stream.until(lambda r: len(r.outputs) > 2)
    rest = await rig.decoded(rig.work(prompt, output=[first], kv=kv))
    assert rest.outputs[0].transferred_tokens == 2048
    rig.decode.abort(stream.work.attempt)


def test_ucx_is_bound_to_the_interface_of_the_hand_over() -> None:
    assert os.environ["UCX_TLS"] == "tcp"
    assert os.environ["UCX_NET_DEVICES"] == interface_of("127.0.0.1") == "lo"
    with pytest.raises(ValueError, match=r"203\.0\.113\.9"):
        interface_of("203.0.113.9")

"""Parts of the vLLM adapter without an engine: whose KV is left alone, and where seeds stand."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from sub100_engine.api import Output, Work
from sub100_engine.vllm import seeds
from sub100_engine.vllm.exporter import Exporter
from sub100_engine.vllm.kv_memory import KvMemory
from sub100_engine.vllm.leases import Leases
from sub100_engine.vllm.puller import CONNECTOR
from sub100_proto.kv import KvHandle
from sub100_proto.sampling import Sampling, Structured

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]

KEY = b"k" * 32


@pytest.fixture
def leases() -> Leases:
    leases = Leases(30.0, time.monotonic)
    leases.pin("key", "request", b"prompt", (0,))
    return leases


@pytest.fixture
def handle(leases: Leases) -> Iterator[KvHandle]:
    """The KV of a prompt of three tokens, which waits at an exporter."""
    exporter = Exporter(KvMemory([np.zeros((2, 4), np.uint64)], "test"), leases, KEY)
    port = exporter.start("127.0.0.1", 0, None)
    yield KvHandle(
        connector=CONNECTOR,
        key="key",
        num_tokens=3,
        layout="test",
        lease_s=30.0,
        endpoint=f"127.0.0.1:{port}",
    )
    exporter.stop()


async def test_engine_that_refuses_a_decode_leaves_its_kv_to_the_next(
    leases: Leases, handle: KvHandle, tmp_path: Path
) -> None:
    """It was never started, as one that failed."""
    from sub100_engine.vllm.config import VllmConfig
    from sub100_engine.vllm.engine import VllmEngine

    engine = VllmEngine(VllmConfig(model=str(tmp_path)), KEY)
    told: asyncio.Future[Output] = asyncio.get_running_loop().create_future()
    work = Work(attempt="a", prompt=[1, 2, 3], sampling=Sampling(max_tokens=9), output=[4], kv=handle)
    engine.decode(work, told.set_result)
    assert (await told).error == "engine_error"
    await asyncio.gather(*engine._releases)
    assert len(leases) == 1


@pytest.mark.parametrize(
    ("output", "has_kv", "code"),
    [([], False, "invalid_grammar"), ([4], False, "engine_error"), ([], True, "engine_error")],
)
async def test_structured_answer_that_ends_in_an_error_blames_its_grammar_only_where_it_began(
    handle: KvHandle, output: list[int], has_kv: bool, code: str
) -> None:
    """Where it goes on, the grammar was compiled before. What became of the pull is not told here."""
    from vllm.outputs import CompletionOutput, RequestOutput

    from sub100_engine.vllm.attempt import Attempt

    async def failed() -> AsyncIterator[RequestOutput]:
        completion = CompletionOutput(0, "", [], None, None, finish_reason="error")
        yield RequestOutput("a", None, [1, 2, 3], None, [completion], finished=True)

    sampling = Sampling(max_tokens=9, structured=Structured(kind="json_object"))
    kv = handle if has_kv else None
    work = Work(attempt="a", prompt=[1, 2, 3], sampling=sampling, output=output, kv=kv)
    told: list[Output] = []
    assert await Attempt(work, told.append, "", asyncio.get_running_loop()).run(failed()) is None
    assert [each.error for each in told] == [code]


@pytest.mark.parametrize("is_ordered", [False, True])
def test_request_that_is_aborted_releases_nothing(handle: KvHandle, is_ordered: bool) -> None:
    """Its pull is cancelled, if it had been ordered."""
    from vllm.v1.request import RequestStatus

    from sub100_engine.vllm.orders import RequestParams
    from sub100_engine.vllm.scheduling import Scheduling

    params = RequestParams(attempt="a", pull=handle)
    request: Any = SimpleNamespace(
        request_id="r",
        prompt_token_ids=[1, 2, 3],
        num_prompt_tokens=3,
        cache_salt=None,
        status=RequestStatus.FINISHED_ABORTED,
        kv_transfer_params=msgspec.to_builtins(params),
    )
    scheduling = Scheduling(32, 30.0)
    scheduling.add(request)
    if is_ordered:
        scheduling.allocate(request, [7], 3)
        assert [order.handle for order in scheduling.orders({}, [], None).pulls] == [handle]
    assert scheduling.finish(request) == (False, None)
    orders = scheduling.orders({}, [], None)
    assert orders.cancels == (["r"] if is_ordered else [])
    told = [value for name, value in vars(orders).items() if name != "cancels"]
    assert not any(told)


class Counting:
    """A GPU's generator, as far as it counts."""

    device = SimpleNamespace(type="cuda")

    def __init__(self) -> None:
        self.offset = 0

    def get_offset(self) -> int:
        return self.offset

    def set_offset(self, offset: int) -> None:
        self.offset = offset


def test_state_of_an_answer_moves_a_gpus_generator_past_the_tokens_it_begins_with() -> None:
    from vllm.sampling_params import SamplingParams

    from sub100_engine.vllm import runner_patch

    generator = Counting()
    runner_patch._outputs["r"] = [5, 6]
    state = runner_patch.AnswerState("r", [1], [], SamplingParams(seed=11), generator, ([0],), 0, [])
    assert state.output_token_ids == [5, 6]
    assert generator.offset == 2 * seeds.DRAW_OFFSET

"""The behaviour suites on the simulated engine: without speculation, and with it."""

from collections.abc import AsyncIterator

import msgspec
import pytest

pytest.register_assert_rewrite(
    "tests.contract.engine_suite",
    "tests.contract.speculation_suite",
    "tests.contract.answer_shapes",
    "tests.contract.transfer_suite",
)

from tests.contract.answer_shapes import AnswerShapes  # noqa: E402
from tests.contract.engine_rig import Rig  # noqa: E402
from tests.contract.engine_suite import EngineBehaviour  # noqa: E402
from tests.contract.speculation_suite import SpeculationBehaviour  # noqa: E402
from tests.contract.transfer_suite import TransferBehaviour  # noqa: E402

from sub100_engine.api import KvChange  # noqa: E402
from sub100_engine.sim import SimConfig, SimEngine  # noqa: E402

CONFIG = SimConfig(
    vocab_size=1000,
    block_size=16,
    num_blocks=512,
    max_model_len=4096,
    max_num_seqs=32,
    max_chunk_tokens=64,
    answer_min_tokens=20,
    pull_timeout_s=60.0,
)


SPECULATING = msgspec.structs.replace(CONFIG, speculative_tokens=4, acceptance=0.6)


async def started(*configs: SimConfig) -> tuple[Rig, list[SimEngine]]:
    """Prefill, decode and reference."""
    engines = [SimEngine(config) for config in configs]
    changes: list[KvChange] = []
    infos = [
        await engine.start(changes.append if engine is engines[0] else lambda _: None) for engine in engines
    ]
    return Rig(engines[0], engines[1], infos[0], changes, engines[2], vocab_size=1000), engines


@pytest.fixture
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    decode = getattr(request.cls, "decode", CONFIG)
    rig, engines = await started(CONFIG, decode, CONFIG)
    yield rig
    for engine in engines:
        await engine.stop()


@pytest.fixture
def speculating(rig: Rig) -> Rig:
    return rig


class TestSimEngine(EngineBehaviour):
    pass


class TestSpeculatingSimEngine(EngineBehaviour, SpeculationBehaviour):
    """Its answers do not depend on draws, so that all of the first suite holds, seeds included."""

    decode = SPECULATING


class TestSimTransfers(TransferBehaviour):
    pass


class TestSimAnswers(AnswerShapes):
    pass


class TestSpeculatingSimAnswers(AnswerShapes):
    decode = SPECULATING

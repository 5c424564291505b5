"""The behaviour suite on the simulated engine."""

from collections.abc import AsyncIterator

import pytest

pytest.register_assert_rewrite("tests.contract.engine_suite")

from tests.contract.engine_suite import EngineBehaviour, Rig  # noqa: E402

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
)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    engines = [SimEngine(CONFIG) for _ in range(3)]
    changes: list[KvChange] = []
    infos = [
        await engine.start(changes.append if engine is engines[0] else lambda _: None) for engine in engines
    ]
    yield Rig(engines[0], engines[1], infos[0], changes, engines[2], vocab_size=1000)
    for engine in engines:
        await engine.stop()


class TestSimEngine(EngineBehaviour):
    pass

"""What end-to-end tests run against, started once a session.

The running system (``stack``: real NATS, Redis and services, see ``system``) and the official client; and
real vLLM on the tiny model without a system around it (``rig``): two engines that hand over and a third
that says what is right. Engines take about ten seconds each and live on the session's event loop.
"""

import contextlib
import importlib.util
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import openai
import pytest
import pytest_asyncio
from tests.e2e.system import ENGINE, PATIENT
from tests.patience import PATIENCE_S
from tests.stack import Stack, running_stack
from tokenizers import Tokenizer

from sub100_engine.api import KvChange
from sub100_local.tiny_model import make

if TYPE_CHECKING:
    from tests.contract.engine_rig import Rig

    from sub100_engine.vllm.config import VllmConfig

collect_ignore_glob = [] if importlib.util.find_spec("vllm") else ["test_vllm_*"]

KEY = b"a transfer key that is 32 bytes."
MAX_MODEL_LEN = 4096
LEASE_S = 12.0
PULL_TIMEOUT_S = 8.0
"""Far longer than a busy machine keeps a pull waiting, and short enough to be waited for."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What scripts the engine runs in the simulated engine's environment; elsewhere it is left out."""
    if ENGINE == "sim":
        return
    scripted = [item for item in items if item.get_closest_marker("skipif") is not None]
    config.hook.pytest_deselected(items=scripted)
    items[:] = [item for item in items if item not in scripted]


@pytest.fixture(scope="session")
def stack(tiny_model: Path) -> Iterator[Stack]:
    """Shared: tests must leave it as they found it.

    The simulated engine takes a GPU's time for its steps: with none, thousands of tokens are over before
    a heartbeat tells of them.
    """
    with running_stack(tiny_model, engine=ENGINE, timing="h200-8b", traces=True, env=PATIENT) as running:
        yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[openai.OpenAI]:
    """The official client, with the key of a tenant that does not use the cache."""
    with openai.OpenAI(base_url=f"{stack.url}/v1", api_key=stack.keys["plain"], max_retries=0) as made:
        yield made


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("models") / "tiny-llama")


@pytest.fixture(scope="session")
def runtime_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the engines make their private directories; short, for it holds Unix sockets."""
    return tmp_path_factory.mktemp("rt")


@pytest.fixture(scope="session")
def vllm_config(tiny_llama: Path, runtime_base: Path) -> "VllmConfig":
    from sub100_engine.vllm.config import VllmConfig

    return VllmConfig(
        model=str(tiny_llama),
        dtype="float32",  # in bf16 near ties flip with the chunking, on a single engine too
        max_model_len=MAX_MODEL_LEN,
        kv_cache_bytes=64 << 20,
        lease_s=LEASE_S,
        pull_timeout_s=PULL_TIMEOUT_S,
        runtime_dir=str(runtime_base),
    )


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def rig(vllm_config: "VllmConfig", tiny_llama: Path) -> "AsyncIterator[Rig]":
    async with running_rig(vllm_config, tiny_llama) as running:
        yield running


@contextlib.asynccontextmanager
async def running_rig(config: "VllmConfig", tiny_llama: Path) -> "AsyncIterator[Rig]":
    """Three engines of one configuration; the third never hands over."""
    from tests.contract.engine_rig import Rig

    from sub100_engine.vllm.engine import VllmEngine

    changes: list[KvChange] = []
    async with contextlib.AsyncExitStack() as stack:
        engines = [VllmEngine(config, KEY) for _ in range(3)]
        infos = []
        for engine in engines:
            infos.append(await engine.start(changes.append if engine is engines[0] else lambda _: None))
            stack.push_async_callback(engine.stop)
        tokenizer = Tokenizer.from_file(str(tiny_llama / "tokenizer.json"))
        yield Rig(
            engines[0],
            engines[1],
            infos[0],
            changes,
            engines[2],
            vocab_size=4000,
            timeout_s=PATIENCE_S,
            text=tokenizer.decode,
            is_model=True,
        )

"""One running system for the end-to-end tests of a session: real NATS, Redis and services.

The engine is the environment's own: real vLLM on the tiny model where vllm is installed, the simulated
engine elsewhere. Tests that need one of them say so (``vllm`` marker, or ``sim_only``).
"""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from tests.stack import Stack, running_stack

from sub100_local.tiny_model import make

ENGINE = "vllm" if importlib.util.find_spec("vllm") else "sim"
MODEL = "test-model"

PATIENT = {"SUB100_INGRESS_BUDGET_MS": "5000"}
"""A look-up may take a share of the budget: one that a machine busy with other tests keeps, so that a hit
is a hit."""

sim_only = pytest.mark.skipif(
    ENGINE != "sim", reason="scripts the engine: run with the simulated one, in its own environment"
)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def stack(tiny_model: Path) -> Iterator[Stack]:
    """Shared: tests must leave it as they found it."""
    with running_stack(tiny_model, engine=ENGINE, traces=True, env=PATIENT) as running:
        yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[openai.OpenAI]:
    """The official client, with the key of a tenant that does not use the cache."""
    with openai.OpenAI(base_url=f"{stack.url}/v1", api_key=stack.keys["plain"], max_retries=0) as made:
        yield made


@pytest.fixture
def caching_client(stack: Stack) -> Iterator[openai.OpenAI]:
    """The same for the tenant that opted in to the cache."""
    with openai.OpenAI(base_url=f"{stack.url}/v1", api_key=stack.keys["demo"], max_retries=0) as made:
        yield made

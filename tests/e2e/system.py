"""What end-to-end tests share about the system under test; its fixtures are in conftest.

The engine is the environment's own: real vLLM on the tiny model where vllm is installed, the simulated
engine elsewhere. Tests that need one of them say so (``vllm`` marker, or ``sim_only``).
"""

import importlib.util
from typing import Final

import pytest

ENGINE: Final = "vllm" if importlib.util.find_spec("vllm") else "sim"
MODEL: Final = "test-model"

PATIENT: Final = {"SUB100_INGRESS_BUDGET_MS": "5000"}
"""A look-up may take a share of the budget: one that a machine busy with other tests keeps, so that a hit
is a hit."""

sim_only: Final = pytest.mark.skipif(
    ENGINE != "sim", reason="scripts the engine: run with the simulated one, in its own environment"
)

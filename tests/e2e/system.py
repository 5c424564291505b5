"""What end-to-end tests share about the system under test; its fixtures are in conftest.

The engine is the environment's own: real vLLM on the tiny model where vllm is installed, the simulated
engine elsewhere. Tests that need one of them say so (``vllm`` marker, or ``sim_only``).
"""

import importlib.util
import json
from typing import Any, Final

import pytest
from tests.patience import eventually
from tests.stack import Stack

ENGINE: Final = "vllm" if importlib.util.find_spec("vllm") else "sim"
MODEL: Final = "test-model"

PATIENT: Final = {"SUB100_INGRESS_BUDGET_MS": "20000"}
"""A look-up may take a share of the budget: one that a machine busy with other tests keeps, so that a hit
is a hit."""

sim_only: Final = pytest.mark.skipif(
    ENGINE != "sim", reason="scripts the engine: run with the simulated one, in its own environment"
)


def log_of(stack: Stack, request_id: str, instance: str = "ingress-1") -> dict[str, Any]:
    """Ingress's line about a request, written when its last byte has left; waits for it."""
    needle = f'"request_id":"{request_id}"'

    def lines() -> list[dict[str, Any]]:
        found = [json.loads(line) for line in stack.replicas[instance].log.splitlines() if needle in line]
        return [line for line in found if line["event"] == "request"]

    [line] = eventually(lines, f"a log line of {request_id}")
    return line

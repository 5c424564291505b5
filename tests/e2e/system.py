"""What end-to-end tests share about the system under test; its fixtures are in conftest.

The engine is the environment's own: real vLLM on the tiny model where vllm is installed, the simulated
engine elsewhere. Tests that need one of them say so (``vllm`` marker, or ``sim_only``).
"""

import importlib.util
import json
import time
from typing import Any, Final

import pytest
from tests.stack import Stack

ENGINE: Final = "vllm" if importlib.util.find_spec("vllm") else "sim"
MODEL: Final = "test-model"
LOG_TIMEOUT_S: Final = 5.0

PATIENT: Final = {"SUB100_INGRESS_BUDGET_MS": "5000"}
"""A look-up may take a share of the budget: one that a machine busy with other tests keeps, so that a hit
is a hit."""

sim_only: Final = pytest.mark.skipif(
    ENGINE != "sim", reason="scripts the engine: run with the simulated one, in its own environment"
)


def log_of(stack: Stack, request_id: str, instance: str = "ingress-1") -> dict[str, Any]:
    """Ingress's line about a request, written when its last byte has left; waits for it."""
    deadline = time.monotonic() + LOG_TIMEOUT_S
    needle = f'"request_id":"{request_id}"'
    while True:
        lines = [line for line in stack.replicas[instance].log.splitlines() if needle in line]
        found = [line for line in map(json.loads, lines) if line["event"] == "request"]
        if found:
            assert len(found) == 1, found
            return dict(found[0])
        assert time.monotonic() < deadline, f"no log line of {request_id}: {lines}"
        time.sleep(0.02)

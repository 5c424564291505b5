"""A system whose engines take their time: STEP_S a step, so a prompt's length decides when it is answered."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.stack import Stack, running_stack

from .system import MODEL, PATIENT

STEP_S: Final = 0.2
CHUNK_TOKENS: Final = 512


@contextlib.contextmanager
def slow_stack(
    tiny_model: Path, step_s: float = STEP_S, *, num_decode: int = 1, traces: bool = False, **env: str
) -> Iterator[Stack]:
    delay = {"SUB100_SIM_DELAY_MS": str(step_s * 1e3)}
    with running_stack(
        tiny_model, num_decode=num_decode, traces=traces, env={**PATIENT, **delay, **env}
    ) as stack:
        yield stack


def prompt_of_steps(num_steps: int, *, salt: str = "") -> dict[str, Any]:
    """A chat body whose prompt takes prefill about so many steps; another salt shares no block with it."""
    words = f"{salt} " + "word " * (CHUNK_TOKENS * num_steps - CHUNK_TOKENS // 2)
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": words}],
        "temperature": 0,
        "max_tokens": 4,
        "ignore_eos": True,
    }

"""What a fleet takes: scheduler and workers go by one book, so that what is placed is not refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.raw_http import LiveStream, post
from tests.e2e.system import MODEL, PATIENT, sim_only
from tests.stack import Stack, running_stack

pytestmark = sim_only

PROMPT_TOKENS = 300
MAX_QUEUED_TOKENS = 1_000
"""Of each worker: room for three of the prompts to wait, whatever is running."""


@pytest.fixture(scope="module")
def stack(tiny_model: Path) -> Iterator[Stack]:
    env = {
        "SUB100_SIM_DELAY_MS": "20",
        "SUB100_PREFILL_MAX_QUEUED_TOKENS": str(MAX_QUEUED_TOKENS),
        "SUB100_DECODE_MAX_QUEUED_TOKENS": str(MAX_QUEUED_TOKENS),
    }
    with running_stack(tiny_model, num_decode=3, env={**PATIENT, **env}) as running:
        yield running


def body(number: int, **fields: Any) -> dict[str, Any]:
    ids = [300 + (number * 31 + i * i) % 3000 for i in range(PROMPT_TOKENS)]
    return {"model": MODEL, "prompt": ids, "ignore_eos": True, **fields}


def test_running_streams_leave_room_in_the_queue_for_others(stack: Stack) -> None:
    """Their prompts are worth more than every decode worker's queue together; none of them waits."""
    key, url = stack.keys["plain"], "/v1/completions"
    streams = []
    for number in range(12):
        streams.append(LiveStream(stack.url, body(number, max_tokens=3000, stream=True), key, path=url))
        for _ in range(3):  # it runs on decode
            streams[-1].next_text()
    answer = post(stack.url, body(99, max_tokens=4), key, path=url)
    for stream in streams:
        stream.reset()
    assert answer.status == 200, answer.json
    assert '"queue_full"' not in stack.replicas["ingress-1"].log

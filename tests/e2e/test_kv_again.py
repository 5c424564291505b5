"""A decode worker dies with the KV of a long prompt: the stream goes on elsewhere with what the prefill
worker still has in its prefix cache, and decode does not compute the prompt. On both engines."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.bus_watch import BusWatch, watching
from tests.e2e.raw_http import DONE, LiveStream, deltas
from tests.e2e.scrape import Scrape
from tests.e2e.system import ENGINE, MODEL, PATIENT
from tests.stack import Stack, running_stack

from sub100_proto import codec
from sub100_proto.jobs import DecodeJob

pytestmark = pytest.mark.timeout(400)

NUM_PROMPT = 1_500
NUM_TOKENS = 60 if ENGINE == "sim" else 400
CHEAP = {"SUB100_SCHEDULER_TRANSFER_MS_PER_TOKEN": "0.001", "SUB100_SCHEDULER_HANDOVER_MS": "0.1"}
"""So that no predictor of a busy machine finds computing it again quicker."""
BODY: dict[str, Any] = {
    "model": MODEL,
    "prompt": [300 + (i * i + 7 * i) % 3_000 for i in range(NUM_PROMPT)],
    "temperature": 0,
    "max_tokens": NUM_TOKENS,
    "ignore_eos": True,
    "stream": True,
}


@pytest.fixture(scope="module")
def stack(tiny_model: Path) -> Iterator[Stack]:
    env = {**PATIENT, **CHEAP}
    with running_stack(tiny_model, engine=ENGINE, timing="smollm2-cpu", num_decode=2, env=env) as running:
        yield running


@pytest.fixture
def bus(stack: Stack) -> Iterator[BusWatch]:
    with watching(stack) as found:
        found.wait_idle("prefill-1", "decode-1", "decode-2")
        yield found


def open_stream(stack: Stack) -> LiveStream:
    return LiveStream(stack.url, BODY, stack.keys["plain"], path="/v1/completions", timeout_s=60)


def test_stream_of_a_killed_worker_gets_its_kv_from_prefill_again(stack: Stack, bus: BusWatch) -> None:
    mark = bus.mark()
    texts: list[str] = []
    with open_stream(stack) as stream:
        while len(texts) < 5:
            texts.append(stream.next_text())
        (job,) = bus.since(mark, ".decode.job.")
        lost = stack.replicas[job.subject.rpartition(".")[2]]
        (other,) = {"decode-1", "decode-2"} - {lost.instance}
        lost.signal(signal.SIGKILL)
        *events, end = stream.rest()
    try:
        assert end == DONE
        texts += deltas(events)
        resumed = codec.decode_job(bus.since(mark, f".decode.job.{other}.")[-1].data)
        assert isinstance(resumed, DecodeJob)
        assert resumed.kv is not None
        assert len(bus.since(mark, ".prefill.job.")) == 2
        after = Scrape(stack.replicas[other])
        assert after.total("sub100_kv_transfer_tokens_total") == NUM_PROMPT
        cached = Scrape(stack.replicas["prefill-1"]).total(
            "sub100_engine_prompt_tokens_total", sub100_source="cached"
        )
        assert NUM_PROMPT - 2 * 32 <= cached < NUM_PROMPT
    finally:
        lost.wait()
        lost.start()
        stack.wait_ready(lost.instance)
    with open_stream(stack) as quiet:
        *events, end = quiet.rest()
    assert "".join(texts) == "".join(deltas(events))

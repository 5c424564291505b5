"""Waiting for the first token: comments keep the connection open, and nothing else is in the stream."""

import itertools
import secrets
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from tests.e2e.raw_http import DONE, LiveStream, post
from tests.e2e.slow import prompt_of_steps, slow_stack
from tests.e2e.system import MODEL, sim_only
from tests.patience import at_best
from tests.stack import Stack

pytestmark = sim_only

KEEP_ALIVE_S = 0.4
LOOK_S = 0.25
"""How often ingress looks at silent streams (``Watchdog``)."""


@pytest.fixture(scope="module")
def slow(tiny_model: Path) -> Iterator[Stack]:
    with slow_stack(
        tiny_model,
        SUB100_INGRESS_KEEP_ALIVE_S=str(KEEP_ALIVE_S),
        SUB100_INGRESS_FIRST_TOKEN_TIMEOUT_S="5",
        SUB100_INGRESS_STALL_TIMEOUT_S="2",
    ) as running:
        yield running


def test_held_first_token_is_bridged_by_comments_alone(slow: Stack) -> None:
    """A09: bytes keep coming, as comments of one line; no ``id:``, no empty event, no early role."""

    def longest_gap_s() -> float:
        body = prompt_of_steps(10, salt=secrets.token_hex(4)) | {"stream": True}
        with LiveStream(slow.url, body, slow.keys["plain"]) as stream:
            arrivals = [time.monotonic()]
            comments = []
            while isinstance(event := stream.next_event(), bytes):
                comments.append(event)
                arrivals.append(time.monotonic())
            arrivals.append(time.monotonic())
            rest = [event, *stream.rest()]
        assert len(comments) >= 2
        assert set(comments) == {b": keep-alive"}
        assert rest[0]["choices"][0]["delta"]["role"] == "assistant"
        assert rest[-1] == DONE
        return max(later - earlier for earlier, later in itertools.pairwise(arrivals))

    at_best(longest_gap_s, KEEP_ALIVE_S + 2 * LOOK_S + 0.5, "the longest silence")


def test_official_client_reads_over_comments(slow: Stack) -> None:
    """A09: the SDK finishes without an error."""
    body = prompt_of_steps(8, salt="b")
    with (
        openai.OpenAI(base_url=f"{slow.url}/v1", api_key=slow.keys["plain"], max_retries=0) as client,
        client.chat.completions.create(
            model=MODEL,
            messages=body["messages"],
            max_tokens=4,
            stream=True,
            extra_body={"ignore_eos": True},
        ) as stream,
    ):
        chunks = list(stream)
    assert chunks[-1].choices[0].finish_reason == "length"


def test_body_without_a_stream_waits_silently(slow: Stack) -> None:
    """There is no place for comments in a JSON body."""
    answer = post(slow.url, prompt_of_steps(6, salt="c"), slow.keys["plain"])
    assert answer.status == 200
    assert answer.json["usage"]["completion_tokens"] == 4
    assert answer.body.startswith(b"{")


def test_silent_workers_end_a_stream_in_spite_of_keep_alives(slow: Stack) -> None:
    """A09: keep-alives do not hide that nobody will answer: one error event, no finish, no ``[DONE]``."""
    workers = [slow.replicas["prefill-1"], slow.replicas["decode-1"]]
    body = prompt_of_steps(6, salt="d") | {"stream": True}
    with LiveStream(slow.url, body, slow.keys["plain"]) as stream:
        assert stream.next_event() == b": keep-alive"
        for worker in workers:
            worker.signal(signal.SIGSTOP)  # they keep their connections and say nothing
        try:
            started_at = time.monotonic()
            *comments, last = stream.rest()
            took_s = time.monotonic() - started_at
        finally:
            for worker in workers:
                worker.signal(signal.SIGCONT)
    assert took_s < 30, "the default is two minutes"
    assert all(comment == b": keep-alive" for comment in comments)
    assert last["error"]["code"] in ("worker_lost", "deadline_exceeded", "no_capacity")

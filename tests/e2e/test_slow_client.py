"""Clients that stop reading: bounded in time, and their place is given back."""

import contextlib
import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.e2e.bus_watch import BusWatch
from tests.e2e.raw_http import post
from tests.e2e.system import MODEL, sim_only
from tests.patience import PATIENCE_S, eventually
from tests.stack import Stack, running_stack

NUM_TOKENS = 100_000
"""About 20 MB of events: more than the kernel's buffers take."""
CONTEXT = 131_072


@pytest.fixture(scope="module")
def stack(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Waits half a second for a client to take what was written; its model's context is roomy."""
    model = Path(shutil.copytree(tiny_model, tmp_path_factory.mktemp("models") / "roomy"))
    for name, field in (("config", "max_position_embeddings"), ("tokenizer_config", "model_max_length")):
        path = model / f"{name}.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {field: CONTEXT}))
    with running_stack(model, env={"SUB100_INGRESS_WRITE_TIMEOUT_S": "0.5"}) as running:
        yield running


def deaf_client(stack: Stack, path: str, body: dict[str, Any], key: str) -> socket.socket:
    """Asks and never reads; its receive buffer is small."""
    connection = socket.socket()
    connection.settimeout(PATIENCE_S)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    connection.connect(("127.0.0.1", stack.port))
    body_bytes = json.dumps({"model": MODEL, **body}).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n"
        f"content-length: {len(body_bytes)}\r\n\r\n"
    )
    connection.sendall(head.encode() + body_bytes)
    return connection


def deaf_to_a_stream(stack: Stack) -> socket.socket:
    body = {
        "messages": [{"role": "user", "content": "talk"}],
        "max_tokens": NUM_TOKENS,
        "ignore_eos": True,
        "stream": True,
    }
    return deaf_client(stack, "/v1/chat/completions", body, stack.keys["plain"])


def deaf_to_a_body(stack: Stack) -> socket.socket:
    """About 15 MB."""
    body = {"prompt": [300 + i % 3000 for i in range(6000)], "max_tokens": 1, "prompt_logprobs": 20}
    return deaf_client(stack, "/v1/completions", body, stack.keys["single"])


def read_all(connection: socket.socket) -> None:
    while connection.recv(65_536):
        pass


def num_cut(stack: Stack) -> int:
    return stack.replicas["ingress-1"].log.count('"code":"slow_client"')


@sim_only
def test_client_that_never_reads_is_cut_and_its_engine_freed(stack: Stack, bus: BusWatch) -> None:
    with contextlib.closing(deaf_to_a_stream(stack)) as deaf:
        bus.wait(lambda: bus.num_in("decode-1") > 0, "work at decode")
        bus.wait_idle("prefill-1", "decode-1")
        with openai.OpenAI(base_url=f"{stack.url}/v1", api_key=stack.keys["plain"], max_retries=0) as client:
            answer = client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "hello"}], max_tokens=4
            )
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 4
        with pytest.raises(ConnectionResetError):  # what waited for it is gone, and it is told
            read_all(deaf)
    eventually(lambda: num_cut(stack) == 1, "its line in the log")


@sim_only
def test_body_that_nobody_reads_keeps_its_place_until_it_is_cut(stack: Stack) -> None:
    num_before = num_cut(stack)
    with contextlib.closing(deaf_to_a_body(stack)) as deaf:
        eventually(lambda: num_cut(stack) > num_before, "a client that is cut")
        with pytest.raises(ConnectionResetError):
            read_all(deaf)
    answer = post(
        stack.url,
        {"model": MODEL, "prompt": "hello", "max_tokens": 4},
        stack.keys["single"],
        path="/v1/completions",
    )
    assert answer.status == 200


@sim_only
def test_client_that_reads_in_its_own_time_gets_everything(stack: Stack) -> None:
    with openai.OpenAI(base_url=f"{stack.url}/v1", api_key=stack.keys["plain"], max_retries=0) as client:
        stream = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "hello"}],
            max_tokens=600,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"ignore_eos": True},
        )
        usages = [chunk.usage for chunk in stream if chunk.usage is not None]
    assert usages[0].completion_tokens == 600

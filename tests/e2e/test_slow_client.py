"""Clients that stop reading: bounded in time, and their place is given back."""

import contextlib
import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from tests.e2e.bus_watch import watching
from tests.e2e.system import MODEL, sim_only
from tests.stack import Stack, running_stack

NUM_TOKENS = 100_000
"""About 20 MB of events: more than the kernel's buffers take."""
CONTEXT = 131_072


@pytest.fixture(scope="module")
def impatient(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Waits half a second for a client to take what was written; its model's context is roomy."""
    model = Path(shutil.copytree(tiny_model, tmp_path_factory.mktemp("models") / "roomy"))
    for name, field in (("config", "max_position_embeddings"), ("tokenizer_config", "model_max_length")):
        path = model / f"{name}.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {field: CONTEXT}))
    with running_stack(model, env={"SUB100_INGRESS_WRITE_TIMEOUT_S": "0.5"}) as running:
        yield running


def deaf_client(stack: Stack) -> socket.socket:
    """Asks for a long stream and never reads; its receive buffer is small."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    connection.connect(("127.0.0.1", stack.port))
    body = json.dumps(
        {
            "model": MODEL,
            "messages": [{"role": "user", "content": "talk"}],
            "max_tokens": NUM_TOKENS,
            "ignore_eos": True,
            "stream": True,
        }
    ).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {stack.keys['plain']}\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    connection.sendall(head.encode() + body)
    return connection


@sim_only
def test_client_that_never_reads_is_cut_and_its_engine_freed(impatient: Stack) -> None:
    with watching(impatient) as bus, contextlib.closing(deaf_client(impatient)):
        bus.wait(lambda: bus.num_in("decode-1") > 0, "work at decode")
        bus.wait_idle("prefill-1", "decode-1")
        with openai.OpenAI(
            base_url=f"{impatient.url}/v1", api_key=impatient.keys["plain"], max_retries=0
        ) as client:
            answer = client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "hello"}], max_tokens=4
            )
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 4
    assert '"code":"slow_client"' in impatient.replicas["ingress-1"].log


@sim_only
def test_client_that_reads_in_its_own_time_gets_everything(impatient: Stack) -> None:
    with openai.OpenAI(
        base_url=f"{impatient.url}/v1", api_key=impatient.keys["plain"], max_retries=0
    ) as client:
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

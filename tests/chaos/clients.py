"""A fleet with two workers of each role, and clients that ask it the same again and again while workers are
lost, and judge every answer."""

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from tests.e2e.raw_http import DONE, Answer, post
from tests.e2e.slow import slow_stack
from tests.e2e.system import MODEL
from tests.stack import Stack

WORKERS: Final = ("prefill-1", "prefill-2", "decode-1", "decode-2")
LEASE_S: Final = 3.0
NUM_CLIENTS: Final = 8


@contextlib.contextmanager
def fleet_of_four(model: Path, **env: str) -> Iterator[Stack]:
    """Two workers of each role, quick to tell a stall; prefill has its part in every request."""
    with slow_stack(
        model,
        0.01,
        num_decode=2,
        traces=False,
        SUB100_INGRESS_STALL_TIMEOUT_S="10",
        SUB100_PREFILL_LEASE_S=str(LEASE_S),
        SUB100_SCHEDULER_DECODE_ALONE_TOKENS="0",
        **env,
    ) as running:
        running.add("prefill")
        running.wait_ready("prefill-2")
        yield running


def body_of(client: int) -> dict[str, Any]:
    """Another prompt and another length for each client: an answer tells whose it is."""
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": f"Client {client} asks. " + "word " * 40 * client}],
        "temperature": 0,
        "max_tokens": 40 + client,
        "ignore_eos": True,
        "stream": True,
    }


class Clients:
    """NUM_CLIENTS at once; each answer is compared with a quiet run's. ``streams`` is which of them
    stream."""

    def __init__(self, fleet: Stack, streams: Callable[[int], bool] = lambda _: True) -> None:
        self._fleet = fleet
        self._streams = streams
        self._is_over = threading.Event()
        self._expected = [self._ask(client, is_stream=True).text for client in range(NUM_CLIENTS)]
        self.outcomes: Counter[str] = Counter()
        self.faults: list[str] = []
        self._threads = [threading.Thread(target=self._run, args=(i,)) for i in range(NUM_CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _ask(self, client: int, *, is_stream: bool) -> Answer:
        body = body_of(client) | {"stream": is_stream}
        return post(self._fleet.url, body, self._fleet.keys["plain"])

    def _run(self, client: int) -> None:
        is_stream = self._streams(client)
        while not self._is_over.is_set():
            answer = self._ask(client, is_stream=is_stream)
            judge = self._judge_stream if is_stream else self._judge_body
            outcome = judge(answer, self._expected[client])
            self.outcomes[outcome] += 1
            if outcome.startswith("wrong"):
                self.faults.append(f"client {client}: {outcome}: {answer.body[-300:]!r}")
            if answer.status != 200:
                self._is_over.wait(0.1)

    def _judge_body(self, answer: Answer, expected: str) -> str:
        """One 200 with all of it, or one clear error."""
        if answer.status != 200:
            return f"{answer.status} {answer.error['code']}"
        if "error" in answer.json:
            return "wrong: an error under 200"
        [choice] = answer.json["choices"]
        is_whole = choice["finish_reason"] == "length" and choice["message"]["content"] == expected
        return "done" if is_whole else "wrong text"

    def _judge_stream(self, answer: Answer, expected: str) -> str:
        if answer.status != 200:
            return f"{answer.status} {answer.error['code']}"
        if answer.events[-1] == DONE:
            return "done" if answer.text == expected else "wrong text"
        if not expected.startswith(answer.text) or answer.finish_reasons or DONE in answer.events:
            return "wrong end"
        return f"error {answer.events[-1]['error']['code']}"

    def stop(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a request never ended"

"""What is special about prefill: its one event is the first token, with the handle of the prompt's KV."""

from collections.abc import Callable
from typing import Final

from sub100_engine.api import Engine, Output, Work
from sub100_engine.worker.streams import Stream, Streams
from sub100_proto.stream import FirstToken, Timing
from sub100_proto.subjects import Role

NO_TOKEN: Final = 0
"""Stands in for the token of an answer that is over before its first one (``finish_reason`` stop)."""


class PrefillRole:
    """See sub100_engine.worker.role.WorkerRole."""

    role: Role = "prefill"

    def submit(self, engine: Engine, work: Work, sink: Callable[[Output], None]) -> None:
        engine.prefill(work, sink)

    def on_output(self, streams: Streams, stream: Stream, output: Output) -> None:
        token = output.token_ids[0] if output.token_ids else NO_TOKEN
        stream.finish_reason = output.finish_reason
        streams.send(
            stream,
            FirstToken(
                stream.attempt,
                token,
                output.cached_tokens,
                Timing(output.queue_ms, output.transfer_ms, output.compute_ms),
                output.kv,
                output.finish_reason,
                output.logprobs,
            ),
        )

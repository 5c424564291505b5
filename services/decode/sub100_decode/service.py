"""What is special about decode: every token carries its output position, so that nothing can be repeated
or lost without being seen."""

from collections.abc import Callable

from sub100_engine.api import Engine, Output, Work
from sub100_engine.worker.streams import Stream, Streams
from sub100_proto.stream import Timing, Tokens
from sub100_proto.subjects import Role


class DecodeRole:
    """See sub100_engine.worker.role.WorkerRole."""

    role: Role = "decode"

    def submit(self, engine: Engine, work: Work, sink: Callable[[Output], None]) -> None:
        engine.decode(work, sink)

    def on_output(self, streams: Streams, stream: Stream, output: Output) -> None:
        position = stream.position
        is_first = position == stream.first_position
        stream.tokens.extend(output.token_ids)
        stream.finish_reason = output.finish_reason
        ids = tuple(output.token_ids)
        if output.logprobs or output.prompt_logprobs:
            stream.keep_logprobs(output.logprobs, output.prompt_logprobs)
        if is_first:
            stream.timing = Timing(output.queue_ms, output.transfer_ms, output.compute_ms)
            stream.cached_tokens = output.cached_tokens
            stream.transferred_tokens = output.transferred_tokens
            streams.send(stream, stream.again(position))
        else:
            event = Tokens(stream.attempt, position, ids, output.finish_reason, logprobs=output.logprobs)
            streams.send(stream, event)

"""What prefill and decode differ in: how a job is given to the engine, and how its outputs become events."""

from collections.abc import Callable
from typing import Protocol

from sub100_proto import subjects

from ..api import Engine, Output, Work
from .streams import Stream, Streams


class WorkerRole(Protocol):
    role: subjects.Role

    def submit(self, engine: Engine, work: Work, sink: Callable[[Output], None]) -> None: ...

    def on_output(self, streams: Streams, stream: Stream, output: Output) -> None:
        """Turn an output that is no error into an event."""
        ...

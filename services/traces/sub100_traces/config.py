"""What an operator may set: ``SUB100_TRACES_*``."""

from typing import Annotated

import msgspec

from sub100_shared.config import read_secret

from .access import is_loopback
from .store import Limits

Positive = Annotated[int, msgspec.Meta(ge=1)]


class TracesConfig(msgspec.Struct, frozen=True, kw_only=True):
    """``path`` is the SQLite file, readable by its owner only; empty keeps the spans in a temporary
    file that goes with the process. ``max_traces``, ``max_age_h`` and ``max_mib`` bound what is kept, oldest
    out first. ``max_queue_spans`` bounds what waits to be written; beyond it spans are dropped and counted.
    ``max_body_bytes`` bounds one export, before and after decompression. ``operator_key_file`` holds the key
    for reading, needed on any host but loopback; ``intake_key_file`` the exporters', asked for if it is set.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 8090
    path: str = ""
    max_traces: Positive = 250_000
    max_age_h: Positive = 168
    max_mib: Positive = 1024
    max_queue_spans: Positive = 50_000
    max_body_bytes: Positive = 16 * 2**20
    operator_key_file: str = ""
    intake_key_file: str = ""

    @property
    def limits(self) -> Limits:
        return Limits(
            max_traces=self.max_traces, max_age_s=self.max_age_h * 3600.0, max_bytes=self.max_mib * 2**20
        )

    def operator_key(self) -> bytes:
        """Empty where none is needed; raises ConfigError."""
        if is_loopback(self.host) and not self.operator_key_file:
            return b""
        return read_secret(self.operator_key_file, "SUB100_TRACES_OPERATOR_KEY_FILE")

    def intake_key(self) -> bytes:
        """Empty where none is asked for; raises ConfigError."""
        if not self.intake_key_file:
            return b""
        return read_secret(self.intake_key_file, "SUB100_TRACES_INTAKE_KEY_FILE")

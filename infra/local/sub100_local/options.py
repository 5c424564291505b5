"""What ``make run`` and ``make scale`` take."""

from collections.abc import Iterable
from typing import Final, Literal, get_args

import msgspec

from sub100_bootstrap.failure import Failure

EngineName = Literal["vllm", "sim"]
SERVICES: Final = ("traces", "cache", "scheduler", "prefill", "decode", "ingress")
"""In the order in which they start."""
SCALABLE: Final = ("ingress", "cache", "scheduler", "prefill", "decode")
MAX_REPLICAS: Final = 16
DEFAULT_MODEL: Final = "smollm2"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """``model``: ``smollm2``, ``tiny``, a directory, or a Hugging Face id."""

    engine: EngineName = "vllm"
    model: str = DEFAULT_MODEL
    port: int = 8080
    traces_port: int = 8090
    replicas: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(SCALABLE, 1))

    @property
    def needed_memory_gib(self) -> float:
        """Measured with the default model: 2.9 GiB an engine under load, 0.1 a Python service."""
        per_worker = 2.7 if self.engine == "vllm" else 0.15
        return 0.6 + per_worker * (self.replicas["prefill"] + self.replicas["decode"])


def parse_engine(value: str) -> EngineName:
    for name in get_args(EngineName):
        if value == name:
            return name  # type: ignore[no-any-return]  # get_args forgets the literal's type
    raise Failure(f"ENGINE={value}: known engines are {', '.join(get_args(EngineName))}")


def parse_port(name: str, value: str) -> int:
    if not value.isdecimal() or not 0 < int(value) < 65536:
        raise Failure(f"{name}={value}: not a port")
    return int(value)


def parse_replicas(words: Iterable[str]) -> dict[str, int]:
    """``prefill=2 decode=1`` -> counts; raises Failure naming the word at fault."""
    counts: dict[str, int] = {}
    for word in words:
        service, _, count = word.partition("=")
        if service not in SCALABLE:
            raise Failure(f"{word}: can scale {', '.join(SCALABLE)}")
        if not count.isdecimal() or int(count) > MAX_REPLICAS:
            raise Failure(f"{word}: wants a number from 0 to {MAX_REPLICAS}")
        if service == "ingress" and int(count) == 0:
            raise Failure(f"{word}: nothing would listen")
        counts[service] = int(count)
    return counts

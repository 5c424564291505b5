"""Time, injected. Monotonic inside a process; only durations cross processes."""

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Monotonic milliseconds from an arbitrary origin."""


def monotonic_ms() -> float:
    """The process's own Clock."""
    return time.monotonic_ns() / 1e6

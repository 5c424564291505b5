"""Ports on loopback."""

import contextlib
import socket

from sub100_bootstrap.failure import Failure

HOST = "127.0.0.1"


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: a port whose last connections are in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def demand(variable: str, port: int) -> int:
    """``port``, or a Failure that names it and the way out."""
    if not is_free(port):
        raise Failure(
            f"port {port} is taken on {HOST}: stop what listens there, or choose another ({variable}=...)"
        )
    return port


def any_free() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def several_free(count: int) -> list[int]:
    """So many different ports that were free a moment ago."""
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((HOST, 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def prefer(port: int) -> int:
    """``port`` if it is free, else any."""
    return port if is_free(port) else any_free()

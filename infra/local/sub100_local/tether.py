"""Tie a child to its parent: however the parent ends, Linux sends the child SIGTERM."""

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1


def to_parent() -> None:
    """Runs in the child between fork and exec; the process runner drains in order when it comes to it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)

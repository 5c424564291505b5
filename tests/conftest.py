"""Before any test module is imported: suites shared by several modules keep pytest's readable assertions, and
a run that is told to end ends like one that is interrupted: what it has started is stopped."""

import signal
from types import FrameType

import pytest

pytest_plugins = ["tests.e2e.bus_watch"]
pytest.register_assert_rewrite("tests.contract.engine_suite", "tests.contract.answer_shapes")


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


signal.signal(signal.SIGTERM, _interrupt)

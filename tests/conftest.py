"""Before any test module is imported: suites shared by several modules keep pytest's readable assertions, and
a run that is told to end ends like one that is interrupted: what it has started is stopped."""

import signal
from pathlib import Path
from types import FrameType

import pytest

pytest_plugins = ["tests.e2e.bus_watch"]
pytest.register_assert_rewrite(
    "tests.contract.engine_rig", "tests.contract.engine_suite", "tests.contract.answer_shapes"
)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tests must leave it as they found it."""
    from sub100_local.tiny_model import make

    return make(tmp_path_factory.mktemp("models") / "tiny")


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


signal.signal(signal.SIGTERM, _interrupt)

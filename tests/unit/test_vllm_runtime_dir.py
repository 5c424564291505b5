"""A dead engine's directory is swept, a living one's is not."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sub100_engine.vllm.runtime_dir import RuntimeDir, sweep

_HOLD = """
import sys
from sub100_engine.vllm.runtime_dir import RuntimeDir
runtime = RuntimeDir.create(sys.argv[1])
print(runtime.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def base() -> Iterator[Path]:
    """Short, as Unix sockets need it."""
    with tempfile.TemporaryDirectory(prefix="s100-") as path:
        yield Path(path)


def test_directory_and_secret_are_private(base: Path) -> None:
    runtime = RuntimeDir.create(str(base))
    secret = runtime.write_secret("key", b"value")
    assert runtime.path.stat().st_mode & 0o777 == 0o700
    assert secret.stat().st_mode & 0o777 == 0o600
    assert secret.read_bytes() == b"value"
    runtime.remove()
    runtime.remove()
    assert list(base.iterdir()) == []


def test_directory_with_too_long_a_name_is_refused(base: Path) -> None:
    with pytest.raises(ValueError, match="more than"):
        RuntimeDir.create(str(base / ("d" * 90)))


def test_sweep_leaves_a_living_owner_alone(base: Path) -> None:
    runtime = RuntimeDir.create(str(base))
    assert sweep(base) == 0
    assert runtime.path.is_dir()
    runtime.remove()


def test_create_sweeps_what_a_killed_owner_left(base: Path) -> None:
    command = [sys.executable, "-c", _HOLD, str(base)]
    env = {"PYTHONPATH": ":".join(sys.path)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as owner:
        assert owner.stdout is not None
        left = Path(owner.stdout.readline().strip())
        assert left.is_dir()
        owner.kill()
    runtime = RuntimeDir.create(str(base))
    assert not left.exists()
    assert list(base.iterdir()) == [runtime.path]
    runtime.remove()

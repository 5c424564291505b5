"""A dead engine's directory is swept, a living one's is not."""

import subprocess
import sys
from pathlib import Path

from sub100_engine.vllm.runtime_dir import RuntimeDir, sweep

_HOLD = """
import sys
from sub100_engine.vllm.runtime_dir import RuntimeDir
runtime = RuntimeDir.create(sys.argv[1])
print(runtime.path, flush=True)
sys.stdin.read()
"""


def test_directory_and_secret_are_private(tmp_path: Path) -> None:
    runtime = RuntimeDir.create(str(tmp_path))
    secret = runtime.write_secret("key", b"value")
    assert runtime.path.stat().st_mode & 0o777 == 0o700
    assert secret.stat().st_mode & 0o777 == 0o600
    assert secret.read_bytes() == b"value"
    runtime.remove()
    runtime.remove()
    assert list(tmp_path.iterdir()) == []


def test_sweep_leaves_a_living_owner_alone(tmp_path: Path) -> None:
    runtime = RuntimeDir.create(str(tmp_path))
    assert sweep(tmp_path) == 0
    assert runtime.path.is_dir()
    runtime.remove()


def test_create_sweeps_what_a_killed_owner_left(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _HOLD, str(tmp_path)]
    env = {"PYTHONPATH": ":".join(sys.path)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as owner:
        assert owner.stdout is not None
        left = Path(owner.stdout.readline().strip())
        assert left.is_dir()
        owner.kill()
    runtime = RuntimeDir.create(str(tmp_path))
    assert not left.exists()
    assert list(tmp_path.iterdir()) == [runtime.path]
    runtime.remove()

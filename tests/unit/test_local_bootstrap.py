"""Environments: keyed by content, whole or made anew, one install at a time."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sub100_bootstrap import checks, environment, exclusion, lock
from sub100_bootstrap.environment import Recipe
from sub100_bootstrap.failure import Failure
from sub100_bootstrap.pip import Pip


def recipe(tmp_path: Path, content: str = "", revision: int = 1) -> Recipe:
    path = tmp_path / "lock.txt"
    path.write_text(content)
    return Recipe(name="small", lock=path, disk_gib=0.01, revision=revision)


def test_key_follows_the_lock_and_the_recipe(tmp_path: Path) -> None:
    first = recipe(tmp_path, "a==1\n").key()
    assert first == recipe(tmp_path, "a==1\n").key()
    assert first != recipe(tmp_path, "a==2\n").key()
    assert first != recipe(tmp_path, "a==1\n", revision=2).key()
    assert first.startswith("small-")


def test_environment_is_made_once_and_then_found(tmp_path: Path) -> None:
    said: list[str] = []
    made = environment.ensure(recipe(tmp_path), tmp_path / "cache", said.append)
    assert subprocess.run([made.python, "-c", "import sys; sys.exit(7)"], check=False).returncode == 7
    num_lines = len(said)
    assert environment.ensure(recipe(tmp_path), tmp_path / "cache", said.append) == made
    assert len(said) == num_lines


def test_environment_half_finished_is_made_anew(tmp_path: Path) -> None:
    said: list[str] = []
    rest = tmp_path / "cache" / recipe(tmp_path).key()
    (rest / "bin").mkdir(parents=True)
    (rest / "bin/python").symlink_to("/nonexistent")
    made = environment.ensure(recipe(tmp_path), tmp_path / "cache", said.append)
    assert made.directory == rest
    assert made.is_complete
    assert "small: a half-finished install is made anew" in said


def test_environment_whose_install_fails_is_not_taken_for_whole(tmp_path: Path) -> None:
    def refuse(_: Pip, __: Callable[[str], None]) -> None:
        raise Failure("no network")

    failing = Recipe(name="small", lock=recipe(tmp_path).lock, disk_gib=0.01, before=(refuse,))
    with pytest.raises(Failure, match="no network"):
        environment.ensure(failing, tmp_path / "cache", lambda _: None)
    assert not environment.Environment(tmp_path / "cache" / failing.key()).is_complete


def test_pip_failure_is_one_line_with_the_log(tmp_path: Path) -> None:
    log = tmp_path / "pip.log"
    with pytest.raises(Failure, match=r"^thing: .") as caught:
        Pip(Path(sys.executable), log).run("thing", "install", "--no-index", "sub100-has-no-such-package")
    assert str(log) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "sub100-has-no-such-package" in log.read_text()


def test_lock_waits_for_its_holder_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX);"
            "print('held', flush=True); sys.stdin.read()",
            str(path),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    waits: list[str] = []

    def on_wait() -> None:
        waits.append("waiting")
        assert holder.stdin is not None
        holder.stdin.close()

    with exclusion.exclusive(path, on_wait):
        assert holder.wait(5) == 0
    holder.stdout.close()
    assert waits == ["waiting"]


def test_memory_too_small_is_one_line(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 8388608 kB\nMemAvailable:    2097152 kB\n")
    checks.memory(1.9, "the engine", meminfo)
    with pytest.raises(Failure, match=r"the engine needs about 6.0 GiB of memory, 2.0 GiB are available"):
        checks.memory(6.0, "the engine", meminfo)


def test_disk_too_small_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="set XDG_CACHE_HOME"):
        checks.disk(tmp_path / "not" / "there", 1e9)


def test_tool_missing_is_named() -> None:
    with pytest.raises(Failure, match="no-such-tool is missing: install a-package"):
        checks.tool("no-such-tool", "a-package")
    checks.shared_library("libc.so.6", "libc6")
    with pytest.raises(Failure, match=r"libabsent\.so\.1 is missing: install libabsent1"):
        checks.shared_library("libabsent.so.1", "libabsent1")


def test_committed_locks_are_current() -> None:
    assert [entry.path.name for entry in lock.LOCKS if not entry.is_current()] == []

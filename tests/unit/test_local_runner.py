"""The process runner, the real one, with tiny programs."""

import os
import secrets
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S, eventually

from sub100_local import leftovers, private_files, programs, runner, startup
from sub100_local.directories import Directories
from sub100_local.programs import Program, log_path, supervisor_config
from sub100_local.runner import NotRunning, ProcessInfo, Runner
from sub100_local.vigil import Vigil

PATIENT = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("up", flush=True)
signal.pause()
"""
DEAF = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
while True:
    signal.pause()
"""
BROKEN = "import sys; sys.exit('the reason')"


class Bench:
    """A runner without programs, in a directory of its own."""

    def __init__(self, root: Path) -> None:
        self.run_id = secrets.token_hex(8)
        self.directories = Directories(cache=root / "cache", run=root / "run", logs=root / "logs")
        self.directories.create()
        private_files.write(
            self.directories.supervisor_config,
            supervisor_config(self.directories.run, self.directories.logs).encode(),
        )
        self.child = runner.start(self.directories, self.run_id, preexec=None)
        self.runner = Runner(self.directories.socket)

    def add(self, name: str, code: str, environment: dict[str, str] | None = None) -> None:
        program = Program(
            name=name,
            service=name,
            wave=1,
            command=(sys.executable, "-c", code),
            environment=environment or {},
            settle_s=1,
            retries=0,
            stop_wait_s=5,
        )
        program.write(self.directories.programs, self.directories.logs)
        self.runner.add([name])

    def info(self, name: str) -> ProcessInfo:
        return next(info for info in self.runner.processes() if info.name == name)

    def log(self, name: str) -> str:
        path = log_path(self.directories.logs, name)
        return path.read_text() if path.exists() else ""

    def close(self) -> None:
        self.runner.shutdown(PATIENCE_S)
        leftovers.kill(self.run_id, self.child.pid)
        self.child.wait(5)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("r"))
    yield made
    made.close()


def test_program_gets_its_environment_whatever_it_holds(bench: Bench) -> None:
    value = "a \"quoted\" 100% 'value', with = and \n a line"
    bench.add("env-1", "import os; print(repr(os.environ['VALUE']))" + PATIENT, {"VALUE": value})
    eventually(lambda: "up" in bench.log("env-1"), "the program up")
    assert repr(value) in bench.log("env-1")


def test_program_that_is_stopped_drains_and_its_neighbour_goes_on(bench: Bench) -> None:
    bench.add("stay-1", PATIENT)
    bench.add("stay-2", PATIENT)
    eventually(lambda: "up" in bench.log("stay-1") and "up" in bench.log("stay-2"), "both up")
    neighbour = bench.info("stay-1").pid
    assert bench.runner.stop(["stay-2"], PATIENCE_S) == []
    assert bench.info("stay-2").exit_status == 0
    programs.remove(bench.directories.programs, "stay-2")
    bench.runner.forget(["stay-2"])
    assert "stay-2" not in {info.name for info in bench.runner.processes()}
    assert bench.info("stay-1").pid == neighbour


def test_program_that_is_killed_is_started_again_and_the_vigil_says_so(bench: Bench) -> None:
    bench.add("again-1", PATIENT)
    eventually(lambda: bench.info("again-1").state == "RUNNING", "RUNNING")
    vigil = Vigil()
    assert vigil.look(bench.runner.processes(), bench.directories.logs) == []
    first = bench.info("again-1").pid
    os.kill(first, signal.SIGKILL)
    eventually(lambda: bench.info("again-1").pid not in (0, first), "another process")
    assert vigil.look(bench.runner.processes(), bench.directories.logs) == [
        "again-1 exited and was started again"
    ]


def test_program_that_never_starts_gives_up_with_its_last_words(bench: Bench) -> None:
    bench.add("broken-1", BROKEN)
    eventually(lambda: bench.info("broken-1").state == "FATAL", "FATAL")
    with pytest.raises(startup.GaveUp, match="broken-1 does not start") as caught:
        startup.check_alive(bench.runner.processes(), bench.directories.logs)
    assert "the reason" in str(caught.value)
    assert str(log_path(bench.directories.logs, "broken-1")) in str(caught.value)
    programs.remove(bench.directories.programs, "broken-1")
    bench.runner.forget(["broken-1"])


def test_programs_die_with_a_runner_that_is_killed(tmp_path: Path) -> None:
    own = Bench(tmp_path)
    own.add("orphan-1", PATIENT)
    eventually(lambda: "up" in own.log("orphan-1"), "the orphan up")
    assert len(leftovers.find(own.run_id, own.child.pid)) == 2
    own.child.kill()
    own.child.wait(5)
    eventually(lambda: leftovers.find(own.run_id, own.child.pid) == [], "nothing left")
    with pytest.raises(NotRunning):
        own.runner.processes()


def test_leftovers_of_a_run_are_killed_and_those_of_another_are_not(tmp_path: Path) -> None:
    one, other = Bench(tmp_path / "1"), Bench(tmp_path / "2")
    try:
        one.add("deaf-1", DEAF)
        other.add("other-1", PATIENT)
        eventually(lambda: "up" in one.log("deaf-1") and "up" in other.log("other-1"), "both up")
        one.child.kill()
        one.child.wait(5)
        assert leftovers.kill(one.run_id, one.child.pid) >= 1
        assert leftovers.find(one.run_id, one.child.pid) == []
        assert other.info("other-1").pid > 0
    finally:
        one.close()
        other.close()


def test_private_files_are_the_owners_alone(tmp_path: Path) -> None:
    private_files.write(tmp_path / "key", b"secret")
    private_files.write(tmp_path / "key", b"newer")
    assert (tmp_path / "key").read_bytes() == b"newer"
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert private_files.directory(tmp_path / "d").stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d", "key"]

"""``python -m sub100_bootstrap.lock [--check]``: the lock files, made by uv from ``pyproject.toml``.

Each lock's first line holds a digest of what it was made from, so that a check needs no network and an
unrelated new release on the index fails nobody's check.
"""

import hashlib
import json
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .places import ROOT

REQUIREMENTS: Final = ROOT / "requirements"
PYPROJECT: Final = ROOT / "pyproject.toml"
_STAMP: Final = "# inputs: "


@dataclass(frozen=True)
class Lock:
    path: Path
    extras: tuple[str, ...] = ()
    inputs: tuple[Path, ...] = ()
    overrides: tuple[Path, ...] = ()

    def digest(self) -> str:
        """SHA-256 over everything that the lock follows from, the index apart."""
        project = tomllib.loads(PYPROJECT.read_text())["project"]
        extras = project["optional-dependencies"]
        declared = [project["dependencies"], *(extras[name] for name in self.extras)]
        files = [path.read_text() for path in (*self.inputs, *self.overrides)]
        return hashlib.sha256(json.dumps([declared, files]).encode()).hexdigest()

    def is_current(self) -> bool:
        return self.path.exists() and self.path.read_text().startswith(f"{_STAMP}{self.digest()}\n")

    def command(self) -> list[str]:
        """Pins that the file holds already are kept where they still fit."""
        command = ["uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--generate-hashes"]
        command += ["--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_31"]
        for name in self.extras:
            command += ["--extra", name]
        for path in self.overrides:
            command += ["--override", str(path)]
        return [*command, "-o", str(self.path), str(PYPROJECT), *map(str, self.inputs)]

    def make(self) -> None:
        subprocess.run(self.command(), check=True, cwd=ROOT)
        content = self.path.read_text()
        if content.startswith(_STAMP):
            content = content.partition("\n")[2]
        self.path.write_text(f"{_STAMP}{self.digest()}\n{content}")


LOCKS: Final = (
    Lock(
        REQUIREMENTS / "control.txt",
        extras=("ingress", "cache", "scheduler", "prefill", "decode", "traces", "embedded", "dev"),
    ),
    Lock(
        REQUIREMENTS / "engine-cpu.txt",
        # The workers', and the other services' for end-to-end tests on the real engine.
        extras=("ingress", "cache", "scheduler", "prefill", "decode", "traces"),
        inputs=(REQUIREMENTS / "engine-cpu.in",),
        overrides=(REQUIREMENTS / "engine-cpu.overrides",),
    ),
)


def main(arguments: list[str]) -> int:
    stale = [lock for lock in LOCKS if not lock.is_current()]
    if "--check" in arguments:
        for lock in stale:
            print(f"{lock.path.relative_to(ROOT)} is older than what it is made from: run 'make lock'")
        return 1 if stale else 0
    for lock in LOCKS:
        lock.make()
        print(f"{lock.path.relative_to(ROOT)}: locked")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

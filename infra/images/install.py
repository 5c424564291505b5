"""``install.py PYTHON PYPROJECT LOCK EXTRA...``: what one service needs, at the lock's versions and hashes.

The lock also holds the embedded servers and the developers' tools, which no image wants. pip resolves the
project's own requirements and those of the extras under the lock's versions; what it found is then
installed from the lock's own lines, so that every file is checked against its hash. Runs while an image is
built, on the standard library alone.
"""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Final

_PIN: Final = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==(\S+)")


def canonical(name: str) -> str:
    """PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_lock(text: str) -> dict[str, str]:
    """The lock's entries, hashes and continuation lines included, by canonical name."""
    entries: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        pin = _PIN.match(line)
        if pin:
            name = canonical(pin[1])
            entries[name] = line
        elif line.startswith((" ", "\t")) and name:
            entries[name] += f"\n{line}"
        else:
            name = ""
    return entries


def constraints(entries: dict[str, str]) -> str:
    """The versions alone: with hashes, pip would want a hash from every requirement."""
    return "\n".join(entry.partition(" ")[0] for entry in entries.values()) + "\n"


def declared(pyproject: str, extras: list[str]) -> list[str]:
    """The project's requirements and those of ``extras``; raises KeyError for an unknown extra."""
    project = tomllib.loads(pyproject)["project"]
    optional = project["optional-dependencies"]
    return [*project["dependencies"], *(requirement for extra in extras for requirement in optional[extra])]


def chosen(report: str, entries: dict[str, str]) -> list[str]:
    """The lock's entries for what pip would install; raises KeyError for a package that it does not name."""
    names = [item["metadata"]["name"] for item in json.loads(report)["install"]]
    return [entries[canonical(name)] for name in sorted(names)]


def main(python: str, pyproject: str, lock: str, extras: list[str]) -> None:
    entries = read_lock(Path(lock).read_text())
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        limits, report, wanted = (directory / file for file in ("limits.txt", "report.json", "wanted.txt"))
        limits.write_text(constraints(entries))
        resolve = ["--dry-run", "--report", str(report), "--constraint", str(limits)]
        subprocess.run([*pip, *resolve, *declared(Path(pyproject).read_text(), extras)], check=True)
        wanted.write_text("\n".join(chosen(report.read_text(), entries)) + "\n")
        subprocess.run([*pip, "--no-deps", "--require-hashes", "-r", str(wanted)], check=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])

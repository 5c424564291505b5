"""What an image installs: the lock's own lines, hashes included, and nothing beside them."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

INSTALL = Path(__file__).resolve().parents[2] / "infra/images/install.py"
LOCK = """\
# inputs: abc
Jinja2==3.1.6 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
msgspec==0.23.0 \\
    --hash=sha256:cc
# the last one
pytest==9.2.0 \\
    --hash=sha256:dd
"""
PYPROJECT = """\
[project]
dependencies = ["msgspec>=0.20"]
[project.optional-dependencies]
ingress = ["jinja2>=3.1"]
cache = ["redis"]
"""


@pytest.fixture(scope="module")
def install() -> dict[str, Any]:
    return runpy.run_path(str(INSTALL))


def report(*names: str) -> str:
    return json.dumps({"install": [{"metadata": {"name": name}} for name in names]})


def test_lock_entries_keep_their_hashes_under_a_canonical_name(install: dict[str, Any]) -> None:
    entries = install["read_lock"](LOCK)

    assert list(entries) == ["jinja2", "msgspec", "pytest"]
    assert entries["jinja2"] == "Jinja2==3.1.6 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb"


def test_constraints_are_versions_without_hashes(install: dict[str, Any]) -> None:
    entries = install["read_lock"](LOCK)
    assert install["constraints"](entries) == "Jinja2==3.1.6\nmsgspec==0.23.0\npytest==9.2.0\n"


def test_declared_are_the_project_and_the_extras_asked_for(install: dict[str, Any]) -> None:
    assert install["declared"](PYPROJECT, ["ingress"]) == ["msgspec>=0.20", "jinja2>=3.1"]
    with pytest.raises(KeyError, match="nothing"):
        install["declared"](PYPROJECT, ["nothing"])


def test_chosen_are_the_entries_of_what_pip_resolved(install: dict[str, Any]) -> None:
    entries = install["read_lock"](LOCK)
    assert install["chosen"](report("msgspec", "Jinja2"), entries) == [entries["jinja2"], entries["msgspec"]]


def test_chosen_refuses_a_package_that_is_not_locked(install: dict[str, Any]) -> None:
    with pytest.raises(KeyError, match="leftpad"):
        install["chosen"](report("leftpad"), install["read_lock"](LOCK))

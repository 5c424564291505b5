"""Where figures go: one JSON file per benchmark, committed, with the machine that made them."""

import argparse
import json
import os
import platform
import time
from pathlib import Path
from typing import Any, Final

DIRECTORY: Final = Path(__file__).parent / "results"


def arguments(about: str | None, name: str) -> argparse.ArgumentParser:
    """Of a benchmark's options, with one for where its figures go: ``--out``."""
    made = argparse.ArgumentParser(description=about)
    made.add_argument("--out", type=Path, default=DIRECTORY / f"{name}.json")
    return made


def write(path: Path, what: str, **figures: Any) -> None:
    """Write and name the file; ``what`` is one line on what was measured."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = {
        "what": what,
        "date": time.strftime("%Y-%m-%d"),
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version()},
    }
    path.write_text(json.dumps(head | figures, indent=1) + "\n")
    print(f"written: {path}")

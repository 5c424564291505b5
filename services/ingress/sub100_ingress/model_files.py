"""The small JSON files of a model directory."""

from pathlib import Path
from typing import Any

import msgspec


def read_json(path: Path) -> dict[str, Any]:
    """The object in ``path``, {} if there is no such file; raises ValueError naming a bad one."""
    try:
        value = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {path}: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} is not a JSON object")
    return value

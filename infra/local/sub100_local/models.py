"""``MODEL=``: a name that we can make, a directory, or a Hugging Face id."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sub100_bootstrap.failure import Failure

from . import smollm2, tiny_model

TINY_NAME: Final = "tiny-llama"
_PATTERNS: Final = ("*.json", "*.safetensors", "*.jinja", "*.model", "*.txt")
_NEEDED: Final = ("config.json", "tokenizer.json")


def resolve(model: str, models: Path, say: Callable[[str], None]) -> tuple[Path, str]:
    """The directory of a model and the name that clients call it by; raises Failure."""
    models.mkdir(parents=True, exist_ok=True)
    if model == "smollm2":
        return smollm2.ensure(models, say), smollm2.NAME
    if model == "tiny":
        return tiny_model.make(models / TINY_NAME), TINY_NAME
    directory = Path(model).expanduser()
    if directory.is_dir():
        return _checked(directory.resolve(), model), directory.resolve().name
    if model.count("/") != 1 or model.startswith((".", "/", "~")):
        raise Failure(f"MODEL={model}: no such directory, and not a Hugging Face id (owner/name)")
    return _checked(_download(model, say), model), model


def _download(model: str, say: Callable[[str], None]) -> Path:
    """From the usual Hugging Face cache, or into it."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    from huggingface_hub import snapshot_download

    say(f"{model}: from the Hugging Face hub, unless its cache has it")
    try:
        return Path(snapshot_download(model, allow_patterns=list(_PATTERNS)))
    except Exception as error:  # the hub's client raises what its HTTP library raises
        reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise Failure(f"MODEL={model}: cannot be downloaded: {reason[0]}") from error


def _checked(directory: Path, model: str) -> Path:
    missing = [name for name in _NEEDED if not (directory / name).exists()]
    if missing:
        raise Failure(f"MODEL={model}: {directory} has no {' and no '.join(missing)}")
    return directory

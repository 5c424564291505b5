"""Which model an answer is of: tokenizer and template are ingress's own, the weights are the workers'.

The workers say in their heartbeats which weights they run (ADR 13), so that an answer belongs to those that
made it, whatever lies in ingress's own directory, also when they are exchanged under the same name.
"""

import hashlib
import logging
from pathlib import Path
from typing import Final

from .fleet_view import FleetView

_log = logging.getLogger(__name__)

_OF_WEIGHTS: Final = ".index.json"


class ModelRevision:
    """Of one served model. ``text``: ``text_revision`` of ingress's directory."""

    def __init__(self, text: str, fleet: FleetView, model: str) -> None:
        self._text = text
        self._fleet = fleet
        self._model = model
        self._weights: frozenset[str] = frozenset()
        self._revision = ""

    def now(self) -> str:
        """16 hex digits; empty while no worker has said what it runs: then no answer belongs to anything.

        Another one while pools with different weights serve side by side: either may answer."""
        weights = self._fleet.weights(self._model)
        if weights != self._weights:
            self._weights = weights
            known = "\n".join([self._text, *sorted(weights)])
            self._revision = hashlib.sha256(known.encode()).hexdigest()[:16]
            _log.info("model revision", extra={"revision": self._revision, "weights": sorted(weights)})
        return self._revision


def text_revision(directory: Path) -> str:
    """Changes with the tokenizer, the template and the configuration that lie in the model's directory, and
    not with its weights: an ingress needs none."""
    hasher = hashlib.sha256()
    for path in sorted(directory.iterdir()):
        if path.is_file() and path.suffix in {".json", ".jinja"} and not path.name.endswith(_OF_WEIGHTS):
            content = path.read_bytes()
            hasher.update(f"{path.name}:{len(content)}\n".encode())
            hasher.update(content)
    return hasher.hexdigest()

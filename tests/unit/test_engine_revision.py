"""What tells the weights of one name apart."""

from pathlib import Path

import pytest

from sub100_engine.revision import revision


def model(directory: Path, weights: bytes = bytes(1_000_000), config: str = "{}") -> str:
    directory.mkdir()
    (directory / "config.json").write_text(config)
    (directory / "model-00001-of-00001.safetensors").write_bytes(weights)
    return str(directory)


def test_revision_is_that_of_an_equal_copy_whatever_else_lies_there(tmp_path: Path) -> None:
    one, copy = model(tmp_path / "one"), model(tmp_path / "copy")
    (tmp_path / "copy" / "README.md").write_text("a copy")
    (tmp_path / "copy" / "training_args.bin").write_bytes(b"x")
    assert revision(one) == revision(copy) != ""
    assert len(revision(one)) == 12


@pytest.mark.parametrize("place", [0, 500_000, 999_999])
def test_revision_changes_with_weights_of_the_same_shape(tmp_path: Path, place: int) -> None:
    tuned = bytearray(1_000_000)
    tuned[max(0, place - 20_000) : place + 20_000] = b"\x01" * min(40_000, place + 20_000)
    assert revision(model(tmp_path / "one")) != revision(model(tmp_path / "two", bytes(tuned)))


def test_revision_changes_with_the_configuration(tmp_path: Path) -> None:
    longer = model(tmp_path / "two", config='{"rope_theta": 1}')
    assert revision(model(tmp_path / "one")) != revision(longer)


def test_revision_of_weights_that_are_smaller_than_a_sample(tmp_path: Path) -> None:
    assert revision(model(tmp_path / "one", b"ab")) != revision(model(tmp_path / "two", b"ac"))


@pytest.mark.parametrize("name", ["", "HuggingFaceTB/SmolLM2-135M-Instruct", "/nowhere"])
def test_what_is_no_directory_has_no_revision(name: str) -> None:
    assert revision(name) == ""

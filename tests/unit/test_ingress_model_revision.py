"""What tells answers of one model name apart."""

from pathlib import Path

import pytest
from tests.unit.test_ingress_fleet_view import beat, view

from sub100_ingress.model_revision import ModelRevision, text_revision


def directory(path: Path, **files: str) -> Path:
    path.mkdir()
    for name, content in {"tokenizer_json": "{}", "chat_template_jinja": "t", **files}.items():
        (path / name.replace("_", ".")).write_text(content)
    return path


def test_revision_changes_when_the_workers_run_other_weights() -> None:
    seen = view(beat("p", "prefill", revision="a"), beat("d", "decode", revision="a"))
    revision = ModelRevision("text", seen, "m")
    first = revision.now()
    assert len(first) == 16
    assert revision.now() == first

    for worker, role in (("p", "prefill"), ("d", "decode")):
        seen.on_heartbeat(beat(worker, role, revision="b"))  # type: ignore[arg-type]
    assert revision.now() not in ("", first)
    for worker, role in (("p", "prefill"), ("d", "decode")):
        seen.on_heartbeat(beat(worker, role, revision="a"))  # type: ignore[arg-type]
    assert revision.now() == first


def test_revision_is_another_while_two_kinds_of_weights_serve() -> None:
    kinds = [("a",), ("b",), ("a", "b")]
    views = [view(*(beat(kind, "decode", revision=kind) for kind in both)) for both in kinds]
    assert len({ModelRevision("text", seen, "m").now() for seen in views}) == 3


def test_revision_is_none_before_any_worker_has_said_what_it_runs() -> None:
    assert ModelRevision("text", view(beat("d", "decode", state="starting")), "m").now() == ""
    old = ModelRevision("text", view(beat("d", "decode")), "m")  # a worker that does not tell
    assert old.now()


def test_revision_changes_with_what_ingress_does_to_text() -> None:
    seen = view(beat("d", "decode", revision="a"))
    assert ModelRevision("one", seen, "m").now() != ModelRevision("two", seen, "m").now()


@pytest.mark.parametrize(
    ("files", "is_same"),
    [
        ({"model_safetensors": "weights"}, True),
        ({"model_safetensors_index_json": "{}"}, True),
        ({"README_md": "about"}, True),
        ({"tokenizer_json": "{ }"}, False),
        ({"chat_template_jinja": "u"}, False),
        ({"generation__config_json": "{}"}, False),
    ],
)
def test_text_revision_is_of_tokenizer_template_and_configuration(
    tmp_path: Path, files: dict[str, str], is_same: bool
) -> None:
    one, other = directory(tmp_path / "one"), directory(tmp_path / "other", **files)
    assert (text_revision(one) == text_revision(other)) is is_same

"""Simulated answers: readable with a tokenizer, continuable at any token."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from sub100_engine.api import EngineStartError, Work
from sub100_engine.sim import Answer
from sub100_engine.sim.answers import CannedAnswers, readable
from sub100_engine.sim.structured import NoInstance, example
from sub100_proto.sampling import Sampling, Structured

SENTENCES = [[100 * s + i for i in range(20)] for s in range(16)]


def opened(source: CannedAnswers, *, output: list[int] | None = None, **sampling: float) -> Answer:
    fields = Sampling(max_tokens=99, **sampling)  # type: ignore[arg-type]
    return source.open(Work(attempt="a", prompt=[1, 2, 3], sampling=fields, output=output or []))


def ids(answer: Answer, num: int) -> list[int]:
    return [answer.token(position) for position in range(num)]


@pytest.fixture
def tokenizer_dir(tmp_path: Path) -> Path:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator([], trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_answers_are_readable_with_a_models_tokenizer(tokenizer_dir: Path) -> None:
    source = readable(str(tokenizer_dir), "", 8, 64)
    tokenizer = Tokenizer.from_file(str(tokenizer_dir / "tokenizer.json"))
    text = tokenizer.decode(ids(opened(source, temperature=0.0), 1400))
    assert "The nearest region answers first, and the rest of the fleet never hears of it." in text
    assert source.vocab_size == tokenizer.get_vocab_size()


def test_answers_come_from_the_answer_file_if_there_is_one(tokenizer_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "answers.txt").write_text("Grüße, 世界.\n\n", encoding="utf-8")
    source = readable(str(tokenizer_dir), str(tmp_path / "answers.txt"), 8, 64)
    tokenizer = Tokenizer.from_file(str(tokenizer_dir / "tokenizer.json"))
    num = len(tokenizer.encode("Grüße, 世界.").ids)
    assert tokenizer.decode(ids(opened(source, temperature=0.0), num)) == "Grüße, 世界."


@pytest.mark.parametrize("lines", ["", "\n\n"])
def test_answers_refuse_a_file_without_any(tokenizer_dir: Path, tmp_path: Path, lines: str) -> None:
    (tmp_path / "answers.txt").write_text(lines)
    with pytest.raises(EngineStartError, match="no tokens"):
        readable(str(tokenizer_dir), str(tmp_path / "answers.txt"), 8, 64)


def test_answers_go_on_in_the_same_sentence_without_a_seed() -> None:
    source = CannedAnswers(SENTENCES, 2000, 8, 64)
    for _ in range(20):
        begun = ids(opened(source, temperature=1.0), 12)
        for k in (1, 5):
            assert ids(opened(source, output=begun[:k], temperature=1.0), 12) == begun


def test_answers_to_long_prompts_depend_on_their_first_token() -> None:
    source = CannedAnswers([[i] for i in range(500)], 1000, 8, 64)
    tail = list(range(500))

    def first(token: int) -> int:
        work = Work(attempt="a", prompt=[token, *tail], sampling=Sampling(max_tokens=9, temperature=0.0))
        return source.open(work).token(0)

    assert len({first(token) for token in range(8)}) > 4


def shaped(schema: object) -> Structured:
    return Structured(kind="json_schema", spec=json.dumps(schema))


def test_instance_of_lists_within_lists_is_refused_before_it_is_built() -> None:
    schema: dict[str, object] = {"type": "boolean"}
    for _ in range(3):
        schema = {"type": "array", "minItems": 10_000, "items": schema}
    for spec in (schema, {"type": "array", "minItems": 10_000, "items": {"const": "x" * 60_000}}):
        with pytest.raises(NoInstance, match="characters"):
            example(shaped(spec))
    flat = {"type": "array", "minItems": 10_000, "items": {"type": "boolean"}}
    assert json.loads(example(shaped(flat))) == [True] * 10_000


@pytest.mark.parametrize(
    "schema", [{"type": "integer", "minimum": "a"}, {"properties": {"a": {}}, "required": 5}]
)
def test_instance_of_a_malformed_schema_is_refused(schema: object) -> None:
    with pytest.raises(NoInstance):
        example(shaped(schema))

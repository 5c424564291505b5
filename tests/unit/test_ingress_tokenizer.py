import asyncio
import json
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.ingress_model import BOS, EOS, MULTILINGUAL, USER, byte_fallback_model, byte_level_model
from tokenizers import Tokenizer

from sub100_ingress.detokenizer import MAX_HELD_TOKENS, Detokenizer
from sub100_ingress.messages import ChatMessage
from sub100_ingress.template import ChatTemplate
from sub100_ingress.tokenizer import ModelTokenizer
from sub100_ingress.vocabulary import byte_table
from sub100_shared.errors import ClientError

ALPHABET = "aé你🙂🇫🇷👨\u200d👩\u0301ส ้\n▁<|> "


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> ModelTokenizer:
    return ModelTokenizer(byte_level_model(tmp_path_factory.mktemp("byte_level")))


@pytest.fixture(scope="module")
def byte_fallback(tmp_path_factory: pytest.TempPathFactory) -> ModelTokenizer:
    return ModelTokenizer(byte_fallback_model(tmp_path_factory.mktemp("byte_fallback")))


@pytest.fixture(scope="module", params=["byte_level", "byte_fallback"])
def tokenizer(request: pytest.FixtureRequest) -> ModelTokenizer:
    chosen: ModelTokenizer = request.getfixturevalue(request.param)
    return chosen


def token_id(tokenizer: ModelTokenizer, token: str) -> int:
    found = tokenizer.backend.token_to_id(token)
    assert found is not None
    return found


def split(ids: list[int], cuts: list[int]) -> list[list[int]]:
    borders = [0, *sorted({cut % (len(ids) + 1) for cut in cuts}), len(ids)]
    return [ids[start:end] for start, end in pairwise(borders)]


def decode(tokenizer: ModelTokenizer, pieces: list[list[int]]) -> list[str]:
    detokenizer = Detokenizer(tokenizer)
    return [*(detokenizer.push(piece) for piece in pieces), detokenizer.finish()]


# -- encoding


def test_tokenizer_adds_special_tokens_to_completions_only(byte_level: ModelTokenizer) -> None:
    plain = byte_level.encode_chat("The capital")
    assert BOS not in plain
    assert byte_level.encode_completion("The capital") == [BOS, *plain]
    assert byte_level.encode_chat("<|user|>The capital") == [USER, *plain]


def test_tokenizer_reads_limits_and_ends_from_the_model(byte_level: ModelTokenizer) -> None:
    assert byte_level.max_model_len == 512
    assert byte_level.vocab_size == byte_level.backend.get_vocab_size() + 8
    assert byte_level.eos_ids == {EOS, USER}


def test_tokenizer_ignores_truncation_and_padding_of_the_file(tmp_path: Path) -> None:
    path = byte_level_model(tmp_path) / "tokenizer.json"
    spec = json.loads(path.read_text())
    spec["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    spec["padding"] = {
        "strategy": {"Fixed": 99}, "direction": "Right", "pad_to_multiple_of": None,
        "pad_id": 1, "pad_type_id": 0, "pad_token": "<|eos|>",
    }  # fmt: skip
    path.write_text(json.dumps(spec))
    ids = ModelTokenizer(tmp_path).encode_chat("The capital of France")
    assert 2 < len(ids) < 22
    assert EOS not in ids


@pytest.mark.parametrize(("ids", "fits"), [([], True), ([0, 1], True), ([-1], False)])
def test_tokenizer_checks_ids_from_clients(byte_level: ModelTokenizer, ids: list[int], fits: bool) -> None:
    if fits:
        assert byte_level.check_ids(ids) == ids
        return
    with pytest.raises(ClientError, match="token ids must be"):
        byte_level.check_ids(ids)


def test_tokenizer_refuses_the_first_id_beyond_the_vocabulary(byte_level: ModelTokenizer) -> None:
    last = byte_level.vocab_size - 1
    assert byte_level.check_ids([last]) == [last]
    with pytest.raises(ClientError) as refused:
        byte_level.check_ids([0, last + 1], param="stop_token_ids")
    assert refused.value.param == "stop_token_ids"


def test_tokenizer_refuses_text_that_cannot_fit_without_tokenising_it(byte_level: ModelTokenizer) -> None:
    started = time.thread_time()
    with pytest.raises(ClientError) as refused:
        byte_level.encode_completion("a" * 32_000_000)
    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "prompt")
    assert time.thread_time() - started < 0.05


async def test_tokenizer_lets_the_event_loop_run_while_it_encodes_in_a_thread(tmp_path: Path) -> None:
    """The probe below must get a turn during one encode of about 100k tokens, which it does not when
    the library holds the GIL."""
    tokenizer = ModelTokenizer(byte_level_model(tmp_path, max_model_len=200_000))
    text = "The capital of France is Paris, naïve café. " * 8_000
    turns = 0
    encoding = asyncio.create_task(asyncio.to_thread(tokenizer.encode_chat, text))
    while not encoding.done():
        turns += 1
        await asyncio.wait({encoding}, timeout=0.001)
    assert len(await encoding) > 80_000
    assert turns >= 5


@pytest.mark.parametrize("missing", ["tokenizer.json", "config.json"])
def test_tokenizer_names_what_a_directory_lacks(tmp_path: Path, missing: str) -> None:
    (byte_level_model(tmp_path) / missing).unlink()
    with pytest.raises(ValueError, match=missing):
        ModelTokenizer(tmp_path)


def test_rendered_chat_encodes_to_the_templates_special_tokens(tmp_path: Path) -> None:
    directory = byte_level_model(tmp_path)
    text = ChatTemplate(directory).render([ChatMessage(role="user", parts=("Paris",))])
    ids = ModelTokenizer(directory).encode_chat(text)
    assert ids[:2] == [BOS, USER]
    assert text == "<|bos|><|user|>Paris<|assistant|>"


# -- decoding


@given(st.text(ALPHABET, max_size=30), st.lists(st.integers(0, 200), max_size=8))
def test_detokenizer_joins_to_the_text_for_all_splits(
    tokenizer: ModelTokenizer, text: str, cuts: list[int]
) -> None:
    ids = tokenizer.encode_chat(text)
    pieces = decode(tokenizer, split(ids, cuts))
    assert "".join(pieces) == tokenizer.backend.decode(ids)
    assert not any("\ufffd" in piece for piece in pieces)
    for piece in pieces:
        piece.encode("utf-8")


def test_detokenizer_keeps_every_character_whole_token_by_token(tokenizer: ModelTokenizer) -> None:
    ids = tokenizer.encode_chat(MULTILINGUAL)
    assert len(ids) > len(MULTILINGUAL)
    pieces = decode(tokenizer, [[i] for i in ids])
    assert "".join(pieces) == MULTILINGUAL
    assert not any("\ufffd" in piece for piece in pieces)


@given(st.data())
def test_detokenizer_agrees_with_the_library_on_any_ids(
    byte_level: ModelTokenizer, data: st.DataObject
) -> None:
    ids = data.draw(st.lists(st.integers(0, byte_level.vocab_size + 5), max_size=30))
    end = byte_level.encode_chat("\n")
    whole = byte_level.backend.decode(ids + end)
    assert "".join(decode(byte_level, [[i] for i in ids + end])) == whole


def test_detokenizer_drops_an_unfinished_character_however_it_is_cut(tokenizer: ModelTokenizer) -> None:
    ids = tokenizer.encode_chat("ok 🙂")
    before = "ok "
    for length in range(len(tokenizer.encode_chat("ok ")), len(ids)):
        for pieces in ([ids[:length]], [[i] for i in ids[:length]]):
            assert "".join(decode(tokenizer, pieces)) in (before, before.rstrip())


def test_detokenizer_skips_special_tokens_and_unknown_ids(byte_level: ModelTokenizer) -> None:
    ids = byte_level.encode_chat("Paris")
    assert decode(byte_level, [[BOS, *ids[:1]], [USER, 10**9, -1], [*ids[1:], EOS]]) == [
        byte_level.backend.decode(ids[:1]),
        "",
        byte_level.backend.decode(ids[1:]),
        "",
    ]


def test_detokenizer_keeps_text_of_added_tokens_that_are_not_special(byte_level: ModelTokenizer) -> None:
    added = token_id(byte_level, "<tool>你")
    assert "".join(decode(byte_level, [[added]])) == "<tool>你"


def test_table_keeps_special_tokens_that_are_shown(byte_level: ModelTokenizer) -> None:
    """Marks of calls are special tokens of some models."""
    tokenizer = Tokenizer.from_str(byte_level.backend.to_str())
    tokenizer.add_special_tokens(["<tool_call>"])
    special = tokenizer.get_vocab()["<tool_call>"]
    shown, hidden = byte_table(tokenizer, shown=["<tool_call>"]), byte_table(tokenizer)
    assert shown is not None
    assert hidden is not None
    assert (shown[special], hidden[special]) == (b"<tool_call>", b"")
    assert shown[BOS] == b""


def test_detokenizer_does_not_hold_text_back_behind_invalid_bytes(tokenizer: ModelTokenizer) -> None:
    """0x80 starts no character: whatever follows it must come out within the bound."""
    invalid = token_id(tokenizer, "<0x80>" if tokenizer.token_bytes is None else "Ģ")
    assert tokenizer.token_bytes is None or tokenizer.token_bytes[invalid] == b"\x80"
    detokenizer = Detokenizer(tokenizer)
    emitted = "".join(detokenizer.push([invalid]) for _ in range(10 * MAX_HELD_TOKENS))
    assert len(emitted) >= 9 * MAX_HELD_TOKENS
    assert set(emitted) == {"\ufffd"}
    assert detokenizer.push(tokenizer.encode_chat("Paris")).endswith("Paris")

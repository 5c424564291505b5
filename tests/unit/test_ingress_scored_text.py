"""Log probabilities go with the text they belong to, whatever holds text back."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.ingress_model import BOS, MULTILINGUAL, byte_fallback_model, byte_level_model

from sub100_ingress import logprobs
from sub100_ingress.scored_text import ScoredText
from sub100_ingress.text import ScoredToken, TextAssembler
from sub100_ingress.tokenizer import ModelTokenizer
from sub100_proto.logprobs import Row, pack, unpack


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ModelTokenizer:
    return ModelTokenizer(byte_level_model(tmp_path_factory.mktemp("model")))


def rows_of(ids: list[int], num_top: int = 1) -> bytes:
    return pack(
        [Row(-0.5 - i, i + 1, tuple((token, -0.5) for _ in range(num_top))) for i, token in enumerate(ids)]
    )


def fed(text: TextAssembler, ids: list[int], size: int = 1) -> list[tuple[str, list[ScoredToken]]]:
    """What leaves after each event of ``size`` tokens, and at the end."""
    rows = rows_of(ids)
    told: list[tuple[str, list[ScoredToken]]] = []
    for at in range(0, len(ids), size):
        piece = text.push(ids[at : at + size], rows[at * 16 : (at + size) * 16])
        told.append((piece, list(text.take_scored())))
        if text.is_stopped:
            return told
    told.append((text.finish(), list(text.take_scored())))
    return told


def test_rows_come_back_as_they_were_packed() -> None:
    rows = [Row(-0.5, 1, ((7, -0.5), (8, -1.25))), Row(-3.0, 9, ((1, -0.25), (2, -2.0)))]
    assert unpack(pack(rows), 2) == rows
    assert len(pack(rows)) == 2 * 24
    with pytest.raises(ValueError, match="rows"):
        unpack(pack(rows)[:-1], 2)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_tokens_add_up_to_the_text_delivered_so_far(tokenizer: ModelTokenizer, size: int) -> None:
    ids = tokenizer.encode_chat(MULTILINGUAL)
    text, shown = "", b""
    for piece, scored in fed(ScoredText(tokenizer, (), 1), ids, size):
        text += piece
        shown += b"".join(token.token for token in scored)
        assert shown.decode(errors="ignore").startswith(text)
    assert shown.decode() == text == MULTILINGUAL


def test_offsets_are_where_tokens_begin(tokenizer: ModelTokenizer) -> None:
    ids = tokenizer.encode_chat("The capital is 🙂 here")
    scored = [token for _, tokens in fed(ScoredText(tokenizer, (), 1, prefix="ab"), ids) for token in tokens]
    plain = TextAssembler(tokenizer, ())
    for token_id, token in zip(ids, scored, strict=True):
        assert token.offset == 2 + plain.num_chars
        plain.push([token_id])


@pytest.mark.parametrize("size", [1, 3, 100])
def test_stop_string_over_tokens_takes_its_tokens_along(tokenizer: ModelTokenizer, size: int) -> None:
    ids = tokenizer.encode_chat("The capital of France is Paris.")
    told = fed(ScoredText(tokenizer, ("France is",), 1), ids, size)
    text = "".join(piece for piece, _ in told)
    scored = [token for _, tokens in told for token in tokens]
    assert text == "The capital of "
    assert all(token.offset < len(text) for token in scored)
    shown = b"".join(token.token for token in scored).decode()
    assert shown.startswith(text)
    assert [token.token for token in scored] == [tokenizer.bytes_of(i) for i in ids[: len(scored)]]


def test_beginning_of_a_stop_string_that_does_not_come_brings_its_tokens_later(
    tokenizer: ModelTokenizer,
) -> None:
    ids = tokenizer.encode_chat("The capital of France")
    told = fed(ScoredText(tokenizer, ("France!",), 1), ids)
    assert "".join(piece for piece, _ in told) == "The capital of France"
    held = [tokens for piece, tokens in told if not piece]
    assert all(not tokens for tokens in held)
    assert sum(len(tokens) for _, tokens in told) == len(ids)


def test_stop_in_the_first_token_shows_nothing(tokenizer: ModelTokenizer) -> None:
    ids = tokenizer.encode_chat("The capital")
    assert fed(ScoredText(tokenizer, ("T",), 1), ids) == [("", [])]


@given(st.text(max_size=20), st.integers(1, 4))
def test_every_token_is_shown_once_and_in_order(text: str, size: int) -> None:
    tokenizer = _shared()
    ids = [*tokenizer.encode_chat(text), BOS, *tokenizer.encode_chat(text)]
    shown = [token for _, tokens in fed(ScoredText(tokenizer, (), 1), ids, size) for token in tokens]
    assert [token.token for token in shown] == [tokenizer.bytes_of(i) for i in ids]
    assert [token.logprob for token in shown] == [-0.5 - i for i in range(len(ids))]


_tokenizers: list[ModelTokenizer] = []


def _shared() -> ModelTokenizer:
    return _tokenizers[0]


@pytest.fixture(autouse=True)
def _share(tokenizer: ModelTokenizer) -> None:
    _tokenizers[:] = [tokenizer]


def test_tokens_stand_for_bytes_and_special_ones_for_their_names(
    tokenizer: ModelTokenizer, tmp_path: Path
) -> None:
    assert tokenizer.bytes_of(BOS) == b"<|bos|>"
    assert tokenizer.bytes_of(10**6) == b""
    pieces = ModelTokenizer(byte_fallback_model(tmp_path / "pieces"))
    ids = pieces.encode_chat("Paris 𠮷")
    assert b"".join(map(pieces.bytes_of, ids)).decode().strip() == "Paris 𠮷"


def test_chat_shape_is_openais() -> None:
    half = "🙂".encode()[:2]
    scored = [
        ScoredToken(b"Hi", -0.25, 0, ((b"Hi", -0.25), (half, float("-inf")))),
        ScoredToken(half, -1.5, 2),
    ]
    assert logprobs.chat(scored) == {
        "content": [
            {
                "token": "Hi",
                "logprob": -0.25,
                "bytes": [72, 105],
                "top_logprobs": [
                    {"token": "Hi", "logprob": -0.25, "bytes": [72, 105]},
                    {"token": "\ufffd", "logprob": -9999.0, "bytes": [240, 159]},
                ],
            },
            {"token": "\ufffd", "logprob": -1.5, "bytes": [240, 159], "top_logprobs": []},
        ],
        "refusal": None,
    }


def test_completion_shape_is_openais_with_the_token_among_its_alternatives() -> None:
    scored = [ScoredToken(b"A", None, 0), ScoredToken(b"\xf0\x9f", -2.5, 1, ((b"B", -0.5), (b"C", -1.0)))]
    assert logprobs.completion(scored) == {
        "tokens": ["A", "bytes:\\xf0\\x9f"],
        "token_logprobs": [None, -2.5],
        "top_logprobs": [None, {"B": -0.5, "C": -1.0, "bytes:\\xf0\\x9f": -2.5}],
        "text_offset": [0, 1],
    }


def test_bad_words_are_tokenised_at_the_beginning_and_after_a_blank(tokenizer: ModelTokenizer) -> None:
    plain, spaced = tokenizer.encode_chat("Paris"), tokenizer.encode_chat(" Paris")
    found = tokenizer.encode_words(["Paris"], param="bad_words")
    assert found[0] == tuple(plain)
    assert (tuple(spaced) in found) == (len(spaced) == len(plain) and spaced[0] != plain[0])


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize("kind", ["plain", "scored"])
def test_usage_ends_with_the_stop_string_however_tokens_come(
    tokenizer: ModelTokenizer, kind: str, size: int
) -> None:
    """What follows the stop string in the same message is not the answer's, and is not billed."""
    ids = tokenizer.encode_chat("The capital of France is Paris.")
    until = len(tokenizer.encode_chat("The capital of France is"))
    text = TextAssembler(tokenizer, ("is",)) if kind == "plain" else ScoredText(tokenizer, ("is",), 1)
    assert "".join(piece for piece, _ in fed(text, ids, size)) == "The capital of France "
    assert text.num_tokens == until


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize("kind", ["plain", "scored"])
def test_stop_string_of_the_first_tokens_is_text_until_the_minimum_is_there(
    tokenizer: ModelTokenizer, kind: str, size: int
) -> None:
    """As vLLM does it: one that ends in the first ``min_tokens`` tokens is none."""
    text = "is it what it is? It is."
    ids = tokenizer.encode_chat(text)
    for min_tokens in range(len(ids) + 1):
        free = len(tokenizer.decode(ids[:min_tokens]))
        at = next((i for i in range(len(text)) if text.startswith("is", i) and i + 2 > free), None)
        made = (
            TextAssembler(tokenizer, ("is",), min_tokens=min_tokens)
            if kind == "plain"
            else ScoredText(tokenizer, ("is",), 1, min_tokens=min_tokens)
        )
        assert "".join(piece for piece, _ in fed(made, ids, size)) == text[:at]
        assert made.is_stopped == (at is not None)

"""The model's tokenizer, read from its directory; the only importer of ``tokenizers`` here."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from sub100_shared.errors import ClientError

_DEFAULT_CONTEXT: Final = 4096


class ModelTokenizer:
    """Text <-> token ids of one model. Encoding releases the interpreter: a thread may run it.

    Raises OSError or ValueError at construction when the directory is not a model's.
    """

    def __init__(self, directory: Path) -> None:
        path = directory / "tokenizer.json"
        if not path.is_file():
            raise ValueError(f"{directory} holds no tokenizer.json")
        self._tokenizer = Tokenizer.from_file(str(path))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        config = _read(directory / "config.json")
        self.vocab_size: int = int(config.get("vocab_size") or self._tokenizer.get_vocab_size())
        self.max_model_len: int = int(config.get("max_position_embeddings") or _DEFAULT_CONTEXT)

    def limit_context(self, max_model_len: int) -> None:
        """Serve a shorter context than the model's own, as the workers do."""
        self.max_model_len = min(self.max_model_len, max_model_len)

    def encode_chat(self, text: str) -> list[int]:
        """Ids of a rendered template, which holds its special tokens already."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def encode_completion(self, text: str) -> list[int]:
        """Ids of a plain prompt, with the special tokens that the tokenizer adds."""
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids

    def check_ids(self, ids: Sequence[int]) -> list[int]:
        """A prompt given as ids; raises ClientError for an id outside the vocabulary."""
        for position, token in enumerate(ids):
            if not 0 <= token < self.vocab_size:
                raise ClientError(
                    "invalid_value",
                    f"prompt[{position}] is not a token of this model (0 to {self.vocab_size - 1})",
                    param="prompt",
                )
        return list(ids)

    def decode(self, ids: Sequence[int]) -> str:
        """One-shot text of ids, special tokens skipped."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    def decode_stream(self) -> "TokenStream":
        return TokenStream(self._tokenizer)


class TokenStream:
    """Incremental decoding: ``step`` returns text once its characters are complete, else None."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)

    def step(self, token: int) -> str | None:
        """Raises what ``tokenizers`` raises when the text so far is no prefix of the new text."""
        text: str | None = self._stream.step(self._tokenizer, token)
        return text


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of a model directory; empty if the file is absent."""
    return _read(path)


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    value = msgspec.json.decode(path.read_bytes())
    if not isinstance(value, dict):
        raise ValueError(f"{path} is not a JSON object")
    return value

"""Text to token ids: the model's own ``tokenizer.json``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer

from sub100_shared.errors import ClientError

from .model_files import read_json
from .tool_text import MARKS
from .vocabulary import byte_table, piece_bytes

_LENGTH_FIELDS: Final = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "max_sequence_length",
    "seq_length",
)


class ModelTokenizer:
    """Encodes for one model; safe to use from several threads.

    Encoding goes through the batch call because ``Tokenizer.encode`` holds the GIL (0.23: 270 ms at
    170k tokens) and the batch call does not. Raises ValueError if the directory is not a model's.
    """

    def __init__(self, model_dir: Path, *, max_model_len: int | None = None) -> None:
        path = model_dir / "tokenizer.json"
        try:
            self.backend: Tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises plain Exception
            raise ValueError(f"cannot read {path}: {error}") from error
        self.backend.no_truncation()
        self.backend.no_padding()
        config = read_json(model_dir / "config.json")
        config = {**config, **(config.get("text_config") or {})}
        self.max_model_len = max_model_len or _max_model_len(model_dir, config)
        self.vocab_size = int(config.get("vocab_size") or self.backend.get_vocab_size())
        """Ids from 0 to below this may be sent to the engine."""
        self.eos_ids = _eos_ids(config, read_json(model_dir / "generation_config.json"))
        self.token_bytes = byte_table(self.backend, shown=MARKS)
        longest_token = max(len(token.encode()) for token in self.backend.get_vocab())
        self._max_prompt_bytes = longest_token * self.max_model_len

    def encode_chat(self, text: str) -> list[int]:
        """Ids of a rendered template, which holds its special tokens itself; raises ClientError."""
        return self._encode(text, "messages", add_special_tokens=False)

    def encode_completion(self, text: str) -> list[int]:
        """Ids of plain text, with the special tokens that the tokenizer adds; raises ClientError."""
        return self._encode(text, "prompt", add_special_tokens=True)

    def bytes_of(self, token_id: int) -> bytes:
        """What one token stands for, special tokens by their names; b"" for an id without a token."""
        table = self.token_bytes
        if table is not None and 0 <= token_id < len(table) and table[token_id]:
            return table[token_id]
        token: str | None = self.backend.id_to_token(token_id) if token_id >= 0 else None
        if token is None:
            return b""
        return token.encode() if table is not None else piece_bytes(token)

    def encode_words(self, words: Sequence[str], *, param: str) -> tuple[tuple[int, ...], ...]:
        """Every word as it is tokenised at the beginning of a text, and after a blank where that is as
        long; raises ClientError for a word that is nothing. The rule is vLLM's (``bad_words``)."""
        found: list[tuple[int, ...]] = []
        for word in words:
            bare = word.lstrip()
            plain = tuple(self._encode(bare, param, add_special_tokens=False))
            spaced = tuple(self._encode(" " + bare, param, add_special_tokens=False))
            if not plain:
                raise ClientError("invalid_value", f"{param}: a word is empty", param=param)
            found.append(plain)
            if spaced and spaced[0] != plain[0] and len(spaced) == len(plain):
                found.append(spaced)
        return tuple(found)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens left out."""
        text: str = self.backend.decode(list(ids))
        return text

    def check_ids(self, ids: list[int], *, param: str = "prompt") -> list[int]:
        """``ids`` as they are; raises ClientError if one is outside the vocabulary, which would kill an
        engine."""
        if ids and not (min(ids) >= 0 and max(ids) < self.vocab_size):
            raise ClientError(
                "invalid_value", f"{param}: token ids must be from 0 to {self.vocab_size - 1}", param=param
            )
        return ids

    def _encode(self, text: str, param: str, *, add_special_tokens: bool) -> list[int]:
        """Text that cannot fit, at one longest token each, is refused without tokenising it."""
        if len(text) > self._max_prompt_bytes:
            raise ClientError(
                "context_length_exceeded",
                f"the model's context is {self.max_model_len} tokens; the prompt has {len(text)} characters",
                param=param,
            )
        encoding = self.backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0]
        ids: list[int] = encoding.ids
        return ids


def _max_model_len(model_dir: Path, config: dict[str, Any]) -> int:
    for field in _LENGTH_FIELDS:
        length = config.get(field)
        if isinstance(length, int) and length > 0:
            return length
    raise ValueError(f"{model_dir}/config.json does not say how long the model's context is")


def _eos_ids(*configs: dict[str, Any]) -> frozenset[int]:
    found: set[int] = set()
    for config in configs:
        ids = config.get("eos_token_id")
        found.update([ids] if isinstance(ids, int) else ids or [])
    return frozenset(found)

"""Log probabilities in OpenAI's shapes, one for each route; a prompt's in vLLM's."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from sub100_proto.logprobs import Row

from .text import ScoredToken
from .tokenizer import ModelTokenizer

LEAST: Final = -9999.0
"""Stands for minus infinity, which JSON has not (OpenAI's value)."""


def chat(scored: Sequence[ScoredToken]) -> dict[str, Any]:
    """``logprobs`` of a chat choice; ``bytes`` tell what a token that is half a character stands for."""
    content = []
    for token in scored:
        entry = _entry(token.token, token.logprob or 0.0)
        entry["top_logprobs"] = [_entry(other, logprob) for other, logprob in token.top]
        content.append(entry)
    return {"content": content, "refusal": None}


def completion(scored: Sequence[ScoredToken]) -> dict[str, Any]:
    """``logprobs`` of a text choice: a token is among its alternatives, a prompt's first has none."""
    return {
        "tokens": [_name(token.token) for token in scored],
        "token_logprobs": [None if token.logprob is None else _finite(token.logprob) for token in scored],
        "top_logprobs": [_alternatives(token) for token in scored],
        "text_offset": [token.offset for token in scored],
    }


def of_prompt(tokenizer: ModelTokenizer, ids: Sequence[int], rows: Sequence[Row], num_top: int) -> bytes:
    """vLLM's ``prompt_logprobs`` as JSON: by token id, the prompt's own token first."""
    positions: list[dict[str, Any] | None] = [None]
    for token_id, row in zip(ids[1:], rows, strict=True):
        shown = {str(token_id): _ranked(tokenizer, token_id, row.logprob, row.rank)}
        for rank, (other, logprob) in enumerate(row.top[:num_top], 1):
            shown.setdefault(str(other), _ranked(tokenizer, other, logprob, rank))
        positions.append(shown)
    return msgspec.json.encode(positions)


def _ranked(tokenizer: ModelTokenizer, token_id: int, logprob: float, rank: int) -> dict[str, Any]:
    text = tokenizer.bytes_of(token_id).decode("utf-8", "replace")
    return {"logprob": _finite(logprob), "rank": rank, "decoded_token": text}


def _entry(token: bytes, logprob: float) -> dict[str, Any]:
    return {"token": token.decode("utf-8", "replace"), "logprob": _finite(logprob), "bytes": list(token)}


def _alternatives(token: ScoredToken) -> dict[str, float] | None:
    if token.logprob is None:
        return None
    shown = {_name(other): _finite(logprob) for other, logprob in reversed(token.top)}
    shown[_name(token.token)] = _finite(token.logprob)
    return shown


def _name(token: bytes) -> str:
    """OpenAI's way to write a token that is no text: ``bytes:\\xf0\\x9f``; distinct tokens stay distinct."""
    try:
        return token.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token)


def _finite(logprob: float) -> float:
    return max(logprob, LEAST)

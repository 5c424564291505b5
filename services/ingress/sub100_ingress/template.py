"""Chat templates: rendered the way Hugging Face does, in Jinja's immutable sandbox."""

import datetime as dt
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from sub100_shared.errors import ClientError

from .messages import Message
from .tokenizer import read_json

MAX_RENDERED_BYTES: Final = 64 * 2**20


class ChatTemplate:
    """The template of one model directory. Raises ValueError at construction if it does not compile."""

    def __init__(self, directory: Path) -> None:
        config = read_json(directory / "tokenizer_config.json")
        source = _source(directory, config)
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = _strftime_now
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise ValueError(f"{directory}: chat template, line {error.lineno}: {error.message}") from error
        self._tokens = {
            name: _token_text(config.get(name)) for name in ("bos_token", "eos_token", "pad_token")
        }

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt text with the generation prompt added; raises ClientError if the template refuses."""
        try:
            text = self._template.render(
                messages=[message.for_template() for message in messages],
                add_generation_prompt=True,
                tools=None,
                documents=None,
                **self._tokens,
            )
        except jinja2.TemplateError as error:
            raise ClientError(
                "invalid_value",
                f"the model's chat template refuses these messages: {error}",
                param="messages",
            ) from error
        except (TypeError, ValueError, KeyError) as error:
            raise ClientError(
                "invalid_value", "the model's chat template cannot render these messages", param="messages"
            ) from error
        if len(text) > MAX_RENDERED_BYTES:
            raise ClientError("request_too_large", "the rendered prompt is too large", param="messages")
        return text


def _source(directory: Path, config: dict[str, Any]) -> str:
    file = directory / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    source = config.get("chat_template")
    if isinstance(source, list):  # named templates: the default one
        source = next((entry.get("template") for entry in source if entry.get("name") == "default"), None)
    if not isinstance(source, str):
        raise ValueError(f"{directory} holds no chat template")
    return source


def _token_text(token: object) -> str:
    """Special tokens stand in the configuration as text or as ``{"content": ...}``."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else ""


def _tojson(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return dt.datetime.now(tz=dt.UTC).strftime(pattern)

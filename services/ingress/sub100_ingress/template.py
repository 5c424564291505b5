"""Chat templates, rendered the way Hugging Face renders them, in a sandbox."""

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from sub100_shared.errors import ClientError

from .messages import ChatMessage, template_view
from .model_files import read_json
from .tools import Function, template_tool

_OVERHEAD_CHARS: Final = 2**20
_MAX_GROWTH: Final = 4
_CLOCK: Final = "strftime_now"
_TO_THE_MICROSECOND: Final = "%Y-%m-%d %H:%M:%S.%f"


class ChatTemplate:
    """The template of one model, and another for chats with tools where the model has one; safe to use from
    several threads.

    Without a template in the directory only completions can be served. ``now`` feeds ``strftime_now``.
    Raises ValueError if the template does not compile.
    """

    def __init__(self, model_dir: Path, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        config = read_json(model_dir / "tokenizer_config.json")
        self._special = _special_tokens(config, read_json(model_dir / "special_tokens_map.json"))
        sources = _sources(model_dir, config)
        self.source_with_tools = sources.get("tool_use", sources.get("default", ""))
        try:
            compiled = {name: _Compiled(source, now) for name, source in sources.items()}
        except jinja2.TemplateError as error:
            raise ValueError(f"the chat template in {model_dir} does not compile: {error}") from error
        self._now = now
        self._time_patterns = sorted(set().union(*(each.time_patterns for each in compiled.values())))
        self._plain = compiled.get("default")
        self._with_tools = compiled.get("tool_use", self._plain)

    def shown_time(self) -> str:
        """All that a prompt may show of the present moment, as text: prompts of equal messages can differ
        where this differs. Empty for most templates."""
        if not self._time_patterns:
            return ""
        now = self._now()
        return "\n".join(now.strftime(pattern) for pattern in self._time_patterns)

    def render(self, messages: Sequence[ChatMessage], functions: Sequence[Function] = ()) -> str:
        """The prompt of a chat, open for the assistant's answer. ``functions`` are shown to a model whose
        template shows any.

        Raises ClientError: there is no template, it refuses the conversation (``raise_exception``), it
        fails on it, or it makes more than _MAX_GROWTH times the text (plus 1 MiB) out of it.
        """
        compiled = self._with_tools if functions else self._plain
        if compiled is None:
            raise ClientError("unsupported_value", "this model has no chat template", param="messages")
        views = [template_view(each, with_tool_calls=compiled.knows_tool_calls) for each in messages]
        num_given = sum(len(view["content"]) for view in views)
        num_given += sum(len(each.parameters) for each in functions)
        limit = _OVERHEAD_CHARS + _MAX_GROWTH * num_given
        pieces: list[str] = []
        num_chars = 0
        try:
            for piece in compiled.template.generate(
                messages=views,
                tools=[template_tool(each) for each in functions] or None,
                documents=None,
                add_generation_prompt=True,
                **self._special,
            ):
                num_chars += len(piece)
                if num_chars > limit:
                    raise ClientError(
                        "invalid_value", "the chat template makes too much of this", param="messages"
                    )
                pieces.append(piece)
        except _Refusal as refusal:
            raise ClientError(
                "invalid_value", f"the chat template refuses: {refusal}", param="messages"
            ) from refusal
        except (
            jinja2.TemplateError,
            ArithmeticError,
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
        ) as error:
            raise ClientError(
                "invalid_value", "the model's chat template cannot render these messages", param="messages"
            ) from error
        return "".join(pieces)


class _Compiled:
    def __init__(self, source: str, now: Callable[[], datetime]) -> None:
        environment = _environment(now)
        self.template = environment.from_string(source)
        self.time_patterns = _time_patterns(environment.parse(source))
        self.knows_tool_calls = "tool_calls" in source


class _Refusal(jinja2.TemplateError):
    """``raise_exception`` in a template."""


class _GenerationTag(Extension):
    """``{% generation %}`` marks assistant text for training; here its body is just rendered."""

    tags: set[str] = {"generation"}  # noqa: RUF012 - jinja2's own declaration

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment(now: Callable[[], datetime]) -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, "jinja2.ext.loopcontrols"]
    )

    def strftime_now(pattern: str) -> str:
        return now().strftime(pattern)

    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals[_CLOCK] = strftime_now
    return environment


def _time_patterns(template: nodes.Template) -> set[str]:
    """The patterns with which ``template`` asks for the time; one that is not written out may show all of
    it."""
    num_unknown = sum(name.name == _CLOCK for name in template.find_all(nodes.Name))
    patterns: set[str] = set()
    for found in template.find_all((nodes.Call, nodes.Test)):
        match found:
            case nodes.Call(node=nodes.Name(name=name), args=[nodes.Const(value=str(pattern))]):
                if name == _CLOCK:
                    patterns.add(pattern)
                    num_unknown -= 1
            case nodes.Test(node=nodes.Name(name=name), name="defined"):
                num_unknown -= name == _CLOCK
    return patterns | {_TO_THE_MICROSECOND} if num_unknown else patterns


def _raise_exception(message: object) -> None:
    raise _Refusal(str(message)[:300])


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Python's own spelling of JSON, blanks included: models were trained on it."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _sources(model_dir: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Those of tokenizer_config.json by name; ``chat_template.jinja``, if there is one, is the default."""
    given = config.get("chat_template")
    if not isinstance(given, list):
        given = [] if given is None else [{"name": "default", "template": given}]
    found = {each.get("name"): each.get("template") for each in given if isinstance(each, dict)}
    with contextlib.suppress(FileNotFoundError):
        found["default"] = (model_dir / "chat_template.jinja").read_text(encoding="utf-8")
    sources: dict[str, str] = {}
    for name in ("default", "tool_use"):
        source = found.get(name)
        if isinstance(source, str):
            sources[name] = source
        elif source is not None:
            raise ValueError(f"{model_dir}/tokenizer_config.json: chat_template is not text")
    return sources


def _special_tokens(*configs: Mapping[str, Any]) -> dict[str, str]:
    """``bos_token`` and its like, as text; the first file that has one wins."""
    found: dict[str, str] = {}
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        for config in configs:
            token = config.get(name)
            if isinstance(token, dict):
                token = token.get("content")
            if isinstance(token, str):
                found.setdefault(name, token)
    return found

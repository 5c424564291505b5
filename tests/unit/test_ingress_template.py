import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sub100_ingress.messages import ChatMessage, ToolCall
from sub100_ingress.template import ChatTemplate
from sub100_ingress.tool_support import support_of
from sub100_ingress.tools import Function
from sub100_shared.errors import ClientError

NOW = datetime(2026, 11, 30, 6, 0, tzinfo=UTC)
CHAT = [ChatMessage(role="system", parts=("Be brief.",)), ChatMessage(role="user", parts=("one", "two"))]
CALL = ChatMessage(role="assistant", tool_calls=(ToolCall(id="c", name="f", arguments='{"a": "<é>"}'),))


def template(directory: Path, source: str) -> ChatTemplate:
    config = {"chat_template": source, "bos_token": "<s>", "eos_token": {"content": "</s>"}}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return ChatTemplate(directory, now=lambda: NOW)


def render(directory: Path, source: str, messages: list[ChatMessage] | None = None) -> str:
    return template(directory, source).render(CHAT if messages is None else messages)


def test_template_renders_smollm2_as_hugging_face_does(tmp_path: Path) -> None:
    source = (
        "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
        "{{ '<|im_start|>system\nYou are helpful<|im_end|>\n' }}{% endif %}"
        "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    assert render(tmp_path, source) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\none\ntwo<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("{{ messages[0].content }}", ""),
        ("{% if strftime_now is defined %}{% set d = strftime_now('%d %b %Y') %}{% endif %}", "30 Nov 2026"),
        ("{{ strftime_now('%Y') }}{{ strftime_now('%b') }}{{ strftime_now('%Y') }}", "2026\nNov"),
        (
            "{{ strftime_now(bos_token) }}{{ strftime_now('%b') }}",
            "2026-11-30 06:00:00.000000\nNov",
        ),
        ("{% set clock = strftime_now %}{{ clock('%S') }}", "2026-11-30 06:00:00.000000"),
    ],
)
def test_template_tells_all_that_it_may_show_of_the_time(tmp_path: Path, source: str, shown: str) -> None:
    assert template(tmp_path, source).shown_time() == shown


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ bos_token }}{{ eos_token }}", "<s></s>"),
        ("  {% if true %}\n  x\n  {% endif %}\ny", "  x\ny"),
        (
            "{% for m in messages %}{% if loop.index == 2 %}{% break %}{% endif %}{{ m.role }}{% endfor %}",
            "system",
        ),
        ("{{ strftime_now('%d %b %Y') }}", "30 Nov 2026"),
        ("{{ {'b': '<é>', 'a': [1]} | tojson }}", '{"b": "<é>", "a": [1]}'),
        ("{{ tools is none }}{{ documents is none }}", "TrueTrue"),
        ("{% generation %}{{ messages[1].content }}{% endgeneration %}", "one\ntwo"),
        ("{{ missing }}|{{ messages[0].content | trim }}", "|Be brief."),
    ],
)
def test_template_has_what_hugging_face_gives_it(tmp_path: Path, source: str, expected: str) -> None:
    assert render(tmp_path, source) == expected


def test_template_gives_tool_calls_parsed_when_the_template_knows_them(tmp_path: Path) -> None:
    source = (
        "{% for c in messages[0].tool_calls %}{{ c.function.name }}:{{ c.function.arguments.a }}{% endfor %}"
    )
    assert render(tmp_path, source, [CALL]) == "f:<é>"


def test_template_gets_tool_calls_as_text_when_it_knows_none(tmp_path: Path) -> None:
    rendered = render(tmp_path, "{{ messages[0].content }}", [CALL])
    assert rendered == '<tool_call>\n{"name":"f","arguments":{"a":"<é>"}}\n</tool_call>'


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[0].content + 1 }}", "cannot render"),
        ("{{ messages[9].content.x }}", "cannot render"),
        ("{{ 1 / 0 }}", "cannot render"),
        ("{{ ''.__class__.__mro__ }}", "cannot render"),
        ("{{ messages.append(1) }}", "cannot render"),
        ("{% for i in range(99999) %}{{ messages[0].content * 100 }}{% endfor %}", "too much"),
        ("{% for i in range(10 ** 9) %}{% endfor %}", "cannot render"),
    ],
)
def test_template_fails_as_the_clients_error(tmp_path: Path, source: str, message: str) -> None:
    with pytest.raises(ClientError, match=message) as refused:
        render(tmp_path, source)
    assert (refused.value.status, refused.value.param) == (400, "messages")


def test_template_file_wins_over_the_config(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("from the file")
    assert render(tmp_path, "from the config") == "from the file"


def test_template_takes_the_default_of_several(tmp_path: Path) -> None:
    several = [{"name": "rag", "template": "no"}, {"name": "default", "template": "yes"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": several}))
    assert ChatTemplate(tmp_path).render(CHAT) == "yes"


def test_template_for_tools_renders_chats_with_tools(tmp_path: Path) -> None:
    """Hermes' way; newer models have one template for both."""
    several = [
        {"name": "default", "template": "plain"},
        {"name": "tool_use", "template": "{{ tools[0].type }}"},
    ]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": several}))
    template = ChatTemplate(tmp_path)
    assert template.render(CHAT) == "plain"
    assert template.render(CHAT, [Function(name="f")]) == "function"
    assert template.source_with_tools == "{{ tools[0].type }}"


QWEN = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' + messages[0].content + "\\n\\n# Tools\\n\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools>\\n\\n<tool_call>\\n{\\"name\\": <function-name>, \\"arguments\\": <args>}" }}
    {{- "\\n</tool_call><|im_end|>\\n" }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' + tool_call.name + '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
"""
"""After the template of Qwen 2.5."""


def test_round_of_tools_reads_as_the_model_knows_it(tmp_path: Path) -> None:
    made = template(tmp_path, QWEN)
    turns = [
        ChatMessage(role="system", parts=("Be brief.",)),
        ChatMessage(role="user", parts=("Add.",)),
        CALL,
        ChatMessage(role="tool", parts=("3",), tool_call_id="c"),
    ]
    assert made.render(turns, [Function(name="f", description="é")]) == (
        "<|im_start|>system\nBe brief.\n\n# Tools\n\n<tools>\n"
        '{"type": "function", "function": {"name": "f", "description": "é", '
        '"parameters": {"type": "object", "properties": {}}}}\n</tools>\n\n'
        '<tool_call>\n{"name": <function-name>, "arguments": <args>}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\nAdd.<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n{"name": "f", "arguments": {"a": "<é>"}}\n</tool_call>'
        "<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\n3\n</tool_response><|im_end|>\n"
    )
    assert support_of(made.source_with_tools, "auto").form == "hermes"


def test_template_that_is_missing_refuses_chats_only(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="no chat template"):
        ChatTemplate(tmp_path).render(CHAT)


@pytest.mark.parametrize("source", ["{% for %}", "{{ x | no_such_filter }}"])
def test_template_that_does_not_compile_stops_start_up(tmp_path: Path, source: str) -> None:
    with pytest.raises(ValueError, match="does not compile"):
        template(tmp_path, source)


def test_template_names_a_config_that_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(ValueError, match=r"tokenizer_config\.json"):
        ChatTemplate(tmp_path)

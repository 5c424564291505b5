"""Calls told from a model's text: whatever its pieces, the same is told."""

import itertools
import json
import time
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sub100_ingress.tool_message import Call, read_message
from sub100_ingress.tool_text import CallArguments, CallBegun, CallLost, Told, reader
from sub100_ingress.tools import Function, ToolUse

AUTO = ToolUse(functions=(Function(name="look_up"), Function(name="add")), form="hermes")
REQUIRED = ToolUse(functions=AUTO.functions, choice="required")
NAMED = ToolUse(functions=AUTO.functions, choice="named", name="add")

LOOK_UP = '{"name": "look_up", "arguments": {"city": "Köln", "at": [1, {"x": "}]"}]}}'
ADD = '{"name": "add", "arguments": {}}'


def marked(call: str) -> str:
    return f"<tool_call>\n{call}\n</tool_call>"


def told_of(use: ToolUse, pieces: Iterable[str], *, is_cut: bool = False) -> list[Told]:
    text_reader = reader(use)
    return [told for piece in pieces for told in text_reader.push(piece)] + text_reader.finish(is_cut=is_cut)


def joined(told: Sequence[Told]) -> list[Any]:
    """Neighbouring pieces of the same thing put together."""
    found: list[Any] = []
    for each in told:
        last = found[-1] if found else None
        if isinstance(each, str) and isinstance(last, str):
            found[-1] += each
        elif isinstance(each, CallArguments) and isinstance(last, CallArguments) and each.index == last.index:
            found[-1] = CallArguments(each.index, last.text + each.text)
        else:
            found.append(each)
    return found


def pieces_of(text: str, borders: Iterable[int]) -> list[str]:
    at = [0, *sorted(borders), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(at)]


ARGUMENTS = '{"city": "Köln", "at": [1, {"x": "}]"}]}'
NOT_OFFERED = marked('{"name": "rm", "arguments": {"a": 1}}')
NO_NAME = marked('{"name": ["add"], "arguments": {}}')
NO_ARGUMENTS = marked('{"name": "add", "arguments": "x"}')
NEVER_CLOSED = '{"name": "add", "arguments": {"a": {"b": 1}'
NO_JSON = '{"name": "add", "arguments": {a: 1}}'


def call(index: int, name: str, arguments: str = "{}") -> list[Any]:
    return [CallBegun(index, name), CallArguments(index, arguments)]


TEXTS: dict[str, tuple[ToolUse, str, list[Any]]] = {
    "plain": (AUTO, "Just an answer.\n", ["Just an answer.\n"]),
    "call": (AUTO, marked(LOOK_UP), call(0, "look_up", ARGUMENTS)),
    "text before": (AUTO, "Let me see.\n" + marked(ADD), ["Let me see.", *call(0, "add")]),
    "many blanks": (AUTO, "a" + "\n" * 100 + marked(ADD) + "\n" * 100, ["a" + "\n" * 36, *call(0, "add")]),
    "two calls": (
        AUTO,
        f"{marked(LOOK_UP)}\n{marked(ADD)}\n",
        [*call(0, "look_up", ARGUMENTS), *call(1, "add")],
    ),
    "text behind": (AUTO, marked(ADD) + "\n\nDone. ", [*call(0, "add"), "Done. "]),
    "no closing mark": (AUTO, "<tool_call>" + ADD, call(0, "add")),
    "no last bracket": (AUTO, marked(ADD[:-1]), call(0, "add")),
    "closing mark within a string": (
        AUTO,
        marked('{"name": "add", "arguments": {"a": "</tool_call>\\"}<"}}'),
        call(0, "add", '{"a": "</tool_call>\\"}<"}'),
    ),
    "keys in another order": (
        AUTO,
        marked('{"arguments": {"a": 1}, "name": "add"}'),
        call(0, "add", '{"a":1}'),
    ),
    "without arguments": (AUTO, marked('{"name": "add"}'), call(0, "add")),
    "not offered": (AUTO, " " + NOT_OFFERED, [" " + NOT_OFFERED]),
    "not offered, then one that is": (AUTO, NOT_OFFERED + marked(ADD), [NOT_OFFERED, *call(0, "add")]),
    "no object": (AUTO, "a <tool_call>add(1)</tool_call>", ["a <tool_call>add(1)</tool_call>"]),
    "name is none": (AUTO, NO_NAME, [NO_NAME]),
    "arguments are none": (AUTO, NO_ARGUMENTS, [NO_ARGUMENTS]),
    "end within the mark": (AUTO, "1 <tool", ["1 <tool"]),
    "end within the name": (AUTO, 'x\n<tool_call>{"na', ['x\n<tool_call>{"na']),
    "never closed": (
        AUTO,
        marked(NEVER_CLOSED) + "!",
        [
            *call(0, "add", '{"a": {"b": 1}\n'),
            CallLost(0, f"<tool_call>\n{NEVER_CLOSED}\n"),
            "!",
        ],
    ),
    "closed, but no JSON": (
        AUTO,
        marked(NO_JSON),
        [*call(0, "add", "{a: 1}"), CallLost(0, f"<tool_call>\n{NO_JSON}")],
    ),
    "listed": (REQUIRED, f"[{LOOK_UP}, {ADD}]", [*call(0, "look_up", ARGUMENTS), *call(1, "add")]),
    "named": (NAMED, '{"a": 1}', call(0, "add", '{"a": 1}')),
    "named, nothing": (NAMED, "", []),
    "named, ended early": (NAMED, '{"a": ', [*call(0, "add", '{"a": '), CallLost(0, '{"a": ')]),
}


@pytest.mark.parametrize("name", TEXTS)
def test_calls_are_told_whatever_the_pieces(name: str) -> None:
    """Whole, in single characters, and cut in two at every place."""
    use, text, expected = TEXTS[name]
    assert joined(told_of(use, [text])) == expected
    assert joined(told_of(use, text)) == expected
    for border in range(1, len(text)):
        assert joined(told_of(use, [text[:border], text[border:]])) == expected


@given(st.data())
def test_calls_are_told_whatever_the_pieces_of_whatever_text(data: st.DataObject) -> None:
    """Text made of what might confuse a reader, in two cuts of any number of pieces."""
    marks = ["<tool_call>", "</tool_call>", LOOK_UP, ADD, ADD[:-1], LOOK_UP[:40]]
    text = "".join(data.draw(st.lists(st.sampled_from([*marks, *'{}[<"\\ \nx']), max_size=12)))
    use = data.draw(st.sampled_from([AUTO, NAMED]))
    is_cut = data.draw(st.booleans())
    borders = data.draw(st.lists(st.integers(0, len(text)), max_size=20))
    whole = joined(told_of(use, [text], is_cut=is_cut))
    assert joined(told_of(use, pieces_of(text, borders), is_cut=is_cut)) == whole


@given(st.lists(st.sampled_from(["a", " ", "\n", "<", "<tool", "tool_call>", "{}", "é"]), max_size=12))
def test_text_without_a_call_is_all_of_it(parts: list[str]) -> None:
    text = "".join(parts)
    if "<tool_call>" not in text:
        assert "".join(map(str, told_of(AUTO, parts))) == text


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_CALL = st.tuples(st.sampled_from(["look_up", "add"]), st.dictionaries(st.text(), _JSON))


@given(st.lists(_CALL, min_size=1, max_size=3), st.booleans(), st.data())
def test_every_call_arrives_as_it_was_written(
    calls: list[tuple[str, dict[str, Any]]], is_ascii: bool, data: st.DataObject
) -> None:
    written = [
        json.dumps({"name": name, "arguments": arguments}, ensure_ascii=is_ascii) for name, arguments in calls
    ]
    for use, text in ((AUTO, "\n".join(map(marked, written))), (REQUIRED, f"[{', '.join(written)}]")):
        borders = data.draw(st.lists(st.integers(0, len(text)), max_size=20))
        told = told_of(use, pieces_of(text, borders))
        names = [each.name for each in told if isinstance(each, CallBegun)]
        spoken = [""] * len(calls)
        for each in told:
            if isinstance(each, CallArguments):
                spoken[each.index] += each.text
        assert names == [name for name, _ in calls]
        assert [json.loads(each) for each in spoken] == [arguments for _, arguments in calls]
        assert not [each for each in told if isinstance(each, str | CallLost)]


def test_name_is_told_as_soon_as_the_arguments_begin() -> None:
    text_reader = reader(AUTO)
    assert text_reader.push('Hm. <tool_call>{"name": "add", "arguments": ') == ["Hm."]
    assert text_reader.push("{") == [CallBegun(0, "add"), CallArguments(0, "{")]
    assert text_reader.push('"a"') == [CallArguments(0, '"a"')]


def test_only_what_may_become_a_call_is_held_back() -> None:
    text_reader = reader(AUTO)
    assert text_reader.push("a < b and <tool") == ["a < b and"]
    assert text_reader.push("_x> ") == [" <tool_x>"]
    assert text_reader.finish(is_cut=False) == [" "]


CUT = '<tool_call>{"name": "add", "arguments": {"a": '


@pytest.mark.parametrize(
    "said", ["<tool_call>", "\n", "<", '<tool_call>{"name": "add", "arguments": {', '{"']
)
def test_text_made_to_confuse_is_read_in_time_proportional_to_it(said: str) -> None:
    """S09: copying all that is held for each of 40,000 pieces would be a hundred times as much for ten."""
    num = 4_000
    spent_s = []
    for size in (num, 10 * num):
        began_s = time.process_time()
        read_message(AUTO, itertools.repeat(said, size), "stop")
        spent_s.append(time.process_time() - began_s)
    assert spent_s[1] < 40 * spent_s[0] + 0.1


@pytest.mark.parametrize(
    ("use", "text", "reason", "content", "calls", "told"),
    [
        (AUTO, "Hi.", "stop", "Hi.", [], "stop"),
        (AUTO, marked(ADD), "stop", "", ["{}"], "tool_calls"),
        (AUTO, marked(ADD), "length", "", ["{}"], "length"),
        (AUTO, CUT, "length", "", ['{"a": '], "length"),
        (AUTO, CUT, "stop", CUT, [], "stop"),
        (AUTO, marked(ADD) + CUT, "stop", CUT, ["{}"], "tool_calls"),
        (REQUIRED, f"[{ADD}]", "stop", "", ["{}"], "tool_calls"),
        (NAMED, '{"a": 1', "length", "", ['{"a": 1'], "length"),
    ],
)
def test_message_is_what_was_told(
    use: ToolUse, text: str, reason: str, content: str, calls: list[str], told: str
) -> None:
    """A06: a call that the limit cut is no complete one; what was no call is content, never lost."""
    message = read_message(use, [text], reason)
    assert message.content == content
    assert message.calls == tuple(Call("add", arguments) for arguments in calls)
    assert message.finish_reason == told


@pytest.mark.parametrize("name", TEXTS)
def test_message_is_clean_unless_the_model_made_a_slip_in_a_call(name: str) -> None:
    """Only clean ones are kept in the cache."""
    use, text, expected = TEXTS[name]
    words = "".join(each for each in expected if isinstance(each, str))
    has_slip = "<tool_call>" in words or any(isinstance(each, CallLost) for each in expected)
    assert read_message(use, [text], "stop").is_clean is not has_slip

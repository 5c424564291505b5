import json
from itertools import combinations
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sub100_ingress.cache_key import CacheKey, cache_key, is_cacheable, normalise
from sub100_ingress.keys import Tenant
from sub100_ingress.openai_request import GenerationRequest, parse_chat, parse_completion
from sub100_proto.sampling import Sampling, Structured

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Is Café open?"}


def chat(**fields: Any) -> GenerationRequest:
    return parse_chat(json.dumps({"model": "m", "messages": [SYSTEM, USER], **fields}).encode())


def whole(
    request: GenerationRequest, tenant: str = "t", revision: str = "r", *, semantic: bool = True
) -> CacheKey:
    return cache_key(request, Tenant(name=tenant, semantic=semantic), revision)


def key(request: GenerationRequest, tenant: str = "t", revision: str = "r") -> bytes:
    return whole(request, tenant, revision).digest


def text(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": each} for each in texts]


def tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **fields}}


def called(arguments: str = '{"a": 1}') -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"role": "assistant", "tool_calls": [call]}


def result(content: str) -> dict[str, Any]:
    return {"role": "tool", "content": content, "tool_call_id": "c"}


DIFFERENT: dict[str, GenerationRequest] = {
    "base": chat(),
    "model": chat(model="m2"),
    "temperature": chat(temperature=0),
    "top_p": chat(top_p=0.9),
    "top_k": chat(top_k=5),
    "seed": chat(seed=0),
    "presence": chat(presence_penalty=0.1),
    "frequency": chat(frequency_penalty=0.1),
    "repetition": chat(repetition_penalty=1.1),
    "max_tokens": chat(max_tokens=5),
    "min_tokens": chat(min_tokens=1),
    "ignore_eos": chat(ignore_eos=True),
    "stop_token_ids": chat(stop_token_ids=[1]),
    "stop": chat(stop="x"),
    "stops": chat(stop=["x", "y"]),
    "no system": chat(messages=[USER]),
    "system as user": chat(messages=[{**SYSTEM, "role": "user"}, USER]),
    "user as system": chat(messages=[SYSTEM, {**USER, "role": "system"}]),
    "system case": chat(messages=[{**SYSTEM, "content": "be brief."}, USER]),
    "system blank": chat(messages=[{**SYSTEM, "content": "Be brief. "}, USER]),
    "user case": chat(messages=[SYSTEM, {**USER, "content": "is café open?"}]),
    "user inner blank": chat(messages=[SYSTEM, {**USER, "content": "Is  Café open?"}]),
    "user name": chat(messages=[SYSTEM, {**USER, "name": "eve"}]),
    "first part": chat(messages=[SYSTEM, {**USER, "content": text("A", "Is Café open?")}]),
    "other first part": chat(messages=[SYSTEM, {**USER, "content": text("B", "Is Café open?")}]),
    "joined parts": chat(messages=[SYSTEM, {**USER, "content": "A\nIs Café open?"}]),
    "moved border": chat(messages=[SYSTEM, {**USER, "content": text("A\nIs Café", "open?")}]),
    "two turns": chat(messages=[SYSTEM, USER, {"role": "assistant", "content": "Yes."}, USER]),
    "two turns, other answer": chat(messages=[SYSTEM, USER, {"role": "assistant", "content": "No."}, USER]),
    "call": chat(messages=[SYSTEM, called(), USER]),
    "other arguments": chat(messages=[SYSTEM, called('{"a": 2}'), USER]),
    "tool result": chat(messages=[SYSTEM, called(), result("1"), USER]),
    "other tool result": chat(messages=[SYSTEM, called(), result("2"), USER]),
    "tools": chat(tools=[tool("f")]),
    "other tool": chat(tools=[tool("g")]),
    "other description": chat(tools=[tool("f", description="Adds.")]),
    "other parameters": chat(tools=[tool("f", parameters={"type": "object", "properties": {"a": {}}})]),
    "two tools": chat(tools=[tool("f"), tool("g")]),
    "two tools, other order": chat(tools=[tool("g"), tool("f")]),
    "tools, none": chat(tools=[tool("f")], tool_choice="none"),
    "tools, required": chat(tools=[tool("f")], tool_choice="required"),
    "tools, named": chat(tools=[tool("f")], tool_choice={"type": "function", "function": {"name": "f"}}),
    "tools, one call": chat(tools=[tool("f")], parallel_tool_calls=False),
    "completion": parse_completion(b'{"model":"m","prompt":"Is it?"}'),
    "completion blank": parse_completion(b'{"model":"m","prompt":"Is it? "}'),
    "completion ids": parse_completion(b'{"model":"m","prompt":[1,2]}'),
    "completion other ids": parse_completion(b'{"model":"m","prompt":[1,2,0]}'),
}


@pytest.mark.parametrize(("one", "other"), list(combinations(DIFFERENT, 2)))
def test_key_differs_when_the_question_does(one: str, other: str) -> None:
    assert key(DIFFERENT[one]) != key(DIFFERENT[other])


def test_key_differs_between_tenants_and_revisions() -> None:
    assert len({key(chat()), key(chat(), tenant="u"), key(chat(), revision="s"), key(chat(), "tr", "")}) == 4


def test_key_is_equal_for_both_names_of_the_limit() -> None:
    assert key(chat(max_tokens=5)) == key(chat(max_completion_tokens=5))


SAME: dict[str, GenerationRequest] = {
    "explicit defaults": chat(
        temperature=1, top_p=1.0, n=1, presence_penalty=0, stop=None, stop_token_ids=[]
    ),
    "stream": chat(stream=True),
    "usage": chat(stream=True, stream_options={"include_usage": True}),
    "ignored fields": chat(user="eve", metadata={"tenant": "x"}, cache_salt="x", service_tier="auto"),
    "developer": chat(messages=[{**SYSTEM, "role": "developer"}, USER]),
    "one part": chat(messages=[SYSTEM, {**USER, "content": text("Is Café open?")}]),
    "blanks around": chat(messages=[SYSTEM, {**USER, "content": "\n Is Café open? \r\n"}]),
    "no tools": chat(tools=[], tool_choice="auto", parallel_tool_calls=True),
    "decomposed": chat(messages=[SYSTEM, {**USER, "content": "Is Cafe\u0301 open?"}]),
}


@pytest.mark.parametrize("name", SAME)
def test_key_is_equal_when_only_the_delivery_or_spelling_differs(name: str) -> None:
    assert whole(SAME[name]) == whole(chat())


ONLY_THE_QUESTION = ("base", "user case", "user inner blank", "joined parts")


@pytest.mark.parametrize(("one", "other"), list(combinations(DIFFERENT, 2)))
def test_scope_differs_unless_only_the_question_does(one: str, other: str) -> None:
    """Of the last turn's parts the last is the question; those before it are scope."""
    same = {one, other} <= set(ONLY_THE_QUESTION)
    assert (whole(DIFFERENT[one]).scope == whole(DIFFERENT[other]).scope) is same


def test_question_is_the_last_text_of_the_last_user_turn() -> None:
    assert whole(chat()).question == "Is Café open?"
    assert whole(DIFFERENT["first part"]).question == "Is Café open?"
    assert whole(DIFFERENT["user as system"]).question == ""
    assert whole(DIFFERENT["completion"]).question == ""
    assert whole(chat(messages=[USER, {"role": "assistant", "content": "Yes."}])).question == ""


def test_text_is_no_question_and_counts_in_the_exact_key_all_the_same() -> None:
    long, longer = (whole(chat(messages=[{"role": "user", "content": "x" * size}])) for size in (2001, 2002))
    assert long.question == longer.question == ""
    assert long.scope == longer.scope
    assert long.digest != longer.digest


def test_question_of_an_answer_with_a_shape_is_not_asked() -> None:
    shaped = whole(chat(response_format={"type": "json_object"}))
    assert shaped.question == ""
    assert shaped.scope not in (whole(chat()).scope, whole(chat(temperature=0)).scope)
    assert whole(chat(response_format={"type": "text"})) == whole(chat())


def test_question_is_kept_from_the_semantic_tier_unless_the_tenant_wants_it() -> None:
    without = whole(chat(), semantic=False)
    assert without == CacheKey(digest=key(chat()), scope=whole(chat()).scope, question="", revision="r")


WORKS_ON_WORDING = (
    "Translate the user's text to German.",
    "You are a translator.",
    "Proofread what you are given",
    "Correct the English of the user",
    "REWRITE politely",
    "Classify the intent",
    "Summarise what the customer says",
    "Repeat after me",
    "Count to the end of it",
    "Respond with the number of words",
    "Übersetze ins Englische",
    "Fasse zusammen",
    "Traduis en anglais",
    "Traduce al inglés",
    "Correggi gli errori",
    "请翻译成德文",
    "次の文を翻訳してください",
    "ترجم إلى الألمانية",
    "Переведи на немецкий",
)


@pytest.mark.parametrize("task", WORKS_ON_WORDING)
def test_question_that_is_material_is_kept_from_the_semantic_tier(task: str) -> None:
    system, user = ({"role": role, "content": task} for role in ("system", "user"))
    developer = {"role": "developer", "content": task}
    asked = {"role": "user", "content": f"{task}: is the bank open?"}
    material = [
        whole(chat(messages=[system, USER])),
        whole(chat(messages=[developer, USER])),
        whole(chat(messages=[SYSTEM, user, USER])),
        whole(chat(messages=[SYSTEM, {**USER, "content": text(task, "Is Café open?")}])),
        whole(chat(messages=[SYSTEM, asked])),
    ]

    assert [each.question for each in material] == [""] * 5
    assert len({each.digest for each in material}) == 4  # a developer's prompt is a system prompt


@pytest.mark.parametrize(
    "system",
    [
        "You are a helpful assistant.",
        "You answer clients of a bank about accounts, cards, loans and countries. Be polite and brief.",
        "Antworte höflich und kurz.",
        "Réponds poliment, en deux lignes.",
    ],
)
def test_question_under_plain_instructions_is_asked_of_the_semantic_tier(system: str) -> None:
    assert whole(chat(messages=[{"role": "system", "content": system}, USER])).question == "Is Café open?"


def test_question_behind_examples_or_long_instructions_is_kept_from_the_semantic_tier() -> None:
    shown = [{"role": "user", "content": "cat"}, {"role": "assistant", "content": "Katze"}]
    assert whole(chat(messages=[*shown, USER])).question == ""
    for size, question in ((8_000, "Is Café open?"), (8_001, "")):
        assert whole(chat(messages=[{**SYSTEM, "content": "x" * size}, USER])).question == question


_TEXT = st.sampled_from(["a", "A", "a ", " a", "a\r\nb", "a\nb", "é", "e\u0301", ""])
_MESSAGE = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["system", "user", "assistant"]),
        "content": _TEXT | st.lists(_TEXT, min_size=1, max_size=2).map(lambda texts: text(*texts)),
    },
    optional={"name": st.sampled_from(["ann", "bob"])},
)
_BODY = st.fixed_dictionaries(
    {"messages": st.lists(_MESSAGE, min_size=1, max_size=3)},
    optional={
        "model": st.sampled_from(["m", "m2"]),
        "max_tokens": st.sampled_from([1, 2]),
        "temperature": st.sampled_from([0, 0.5, 1]),
        "top_p": st.sampled_from([0.5, 1]),
        "seed": st.sampled_from([0, 1]),
        "stop": st.sampled_from(["x", ["x"], ["x", "y"], ["y", "x"]]),
        "presence_penalty": st.sampled_from([0, 1]),
        "stop_token_ids": st.sampled_from([[], [1]]),
        "stream": st.booleans(),
        "tools": st.lists(
            st.sampled_from(
                [tool("f"), tool("f", description="x"), tool("f", parameters={"type": "object"})]
            ),
            max_size=1,
        ),
        "parallel_tool_calls": st.booleans(),
    },
)
_WHO = st.tuples(st.sampled_from(["t", "u"]), st.sampled_from(["r", "s"]))


def meaning(request: GenerationRequest, who: tuple[str, str]) -> tuple[Any, Any]:
    """What scope and question stand for, without hashing: an independent account of the rules."""
    turns: list[tuple[Any, ...]] = [
        (m.role, m.parts, m.name, m.tool_calls, m.tool_call_id) for m in request.messages or ()
    ]
    question = None
    role, parts, *rest = turns[-1]
    if role == "user" and parts:
        question = normalise(parts[-1])
        turns[-1] = (role, (*parts[:-1], None), *rest)
    rest_of_it = [
        (name, getattr(request, name))
        for name in request.__struct_fields__
        if name not in ("messages", "stream", "include_usage")
    ]
    return (who, turns, rest_of_it), question


@given(_BODY, _BODY, _WHO, _WHO)
def test_keys_are_shared_exactly_by_requests_that_mean_the_same(
    one: dict[str, Any], other: dict[str, Any], who: tuple[str, str], other_who: tuple[str, str]
) -> None:
    a, b = chat(**one), chat(**other)
    scope_a, question_a = meaning(a, who)
    scope_b, question_b = meaning(b, other_who)
    key_a, key_b = whole(a, *who), whole(b, *other_who)
    assert (key_a.scope == key_b.scope) is (scope_a == scope_b)
    assert (key_a.digest == key_b.digest) is ((scope_a, question_a) == (scope_b, question_b))


@given(_BODY, st.data())
def test_one_changed_field_is_never_shared(body: dict[str, Any], data: st.DataObject) -> None:
    """Pairs that differ in exactly one place, which two independent bodies seldom do."""
    other = body | {"messages": data.draw(st.lists(_MESSAGE, min_size=1, max_size=3))}
    field = data.draw(st.sampled_from(["messages", *_VALUES]))
    if field != "messages":
        other = {k: v for k, v in body.items() if k != field} | {field: data.draw(_VALUES[field])}
    a, b = chat(**body), chat(**other)
    who = ("t", "r")
    assert (whole(a).digest == whole(b).digest) is (meaning(a, who) == meaning(b, who))


_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "max_tokens": st.integers(1, 9),
    "temperature": st.sampled_from([0, 0.1, 1, None]),
    "seed": st.none() | st.integers(0, 3),
    "stop": st.none() | st.lists(st.sampled_from(["x", "y", "xy"]), min_size=1, max_size=2),
    "model": st.sampled_from(["m", "m2", "M"]),
    "tools": st.lists(
        st.builds(
            tool, st.sampled_from("fgh"), description=st.none() | st.text(max_size=1), parameters=st.just({})
        ),
        max_size=2,
        unique_by=lambda drawn: str(drawn["function"]["name"]),
    ),
}


def test_key_has_32_bytes_and_is_stable() -> None:
    assert len(key(chat())) == 32
    assert key(chat()) == key(chat())


@given(st.data())
def test_key_differs_for_any_one_sampling_field(data: st.DataObject) -> None:
    values: dict[str, st.SearchStrategy[Any]] = {
        "min_tokens": st.integers(0, 9),
        "temperature": st.floats(0, 2),
        "top_p": st.floats(0.1, 1),
        "top_k": st.integers(0, 99),
        "presence_penalty": st.floats(-2, 2),
        "frequency_penalty": st.floats(-2, 2),
        "repetition_penalty": st.floats(0.1, 2),
        "seed": st.none() | st.integers(-9, 9),
        "stop_token_ids": st.lists(st.integers(0, 9), max_size=3).map(tuple),
        "ignore_eos": st.booleans(),
        "max_tokens": st.integers(0, 9),
        "min_p": st.floats(0, 1),
        "logit_bias": st.dictionaries(st.integers(0, 9), st.floats(-100, 100), max_size=3),
        "bad_words": st.lists(st.tuples(st.integers(0, 9)), max_size=3).map(tuple),
        "allowed_token_ids": st.lists(st.integers(0, 9), max_size=3).map(tuple),
        "logprobs": st.none() | st.integers(0, 20),
        "prompt_logprobs": st.none() | st.integers(0, 20),
        "structured": st.none() | st.builds(Structured, kind=st.just("regex"), spec=st.text(max_size=3)),
    }
    assert set(values) == set(Sampling.__struct_fields__), "a new sampling field needs a strategy here"
    base = chat().sampling
    name = data.draw(st.sampled_from(sorted(values)))
    value = data.draw(values[name].filter(lambda drawn: drawn != getattr(base, name)))
    changed = msgspec.structs.replace(chat(), sampling=msgspec.structs.replace(base, **{name: value}))
    assert key(changed) != key(chat())


@given(st.text())
def test_normalise_is_idempotent_and_keeps_case(value: str) -> None:
    once = normalise(value)
    assert normalise(once) == once
    assert normalise("A" + value) != normalise("a" + value)


@pytest.mark.parametrize(
    ("request_", "policy", "expected"),
    [
        (chat(temperature=0), "off", False),
        (chat(temperature=0), "deterministic", True),
        (chat(), "deterministic", False),
        (chat(temperature=None), "deterministic", False),
        (chat(temperature=0.01), "deterministic", False),
        (chat(), "all", True),
        (chat(temperature=0, response_format={"type": "json_object"}), "all", True),
        (chat(temperature=0, n=2), "all", False),
        (chat(temperature=0, logprobs=True), "all", False),
        (chat(temperature=0, prompt_logprobs=0), "all", False),
    ],
)
def test_cacheable_follows_the_policy(request_: GenerationRequest, policy: Any, expected: bool) -> None:
    assert is_cacheable(request_, Tenant(name="t", cache=policy)) is expected


@pytest.mark.parametrize("choice", ["none", "auto", "required"])
def test_answer_beside_tools_is_cacheable_where_the_tenant_allows_it(choice: str) -> None:
    """C11; and never by the semantic tier."""
    request = chat(temperature=0, tools=[tool("f")], tool_choice=choice)
    allowed = Tenant(name="t", cache="deterministic", semantic=True, cache_tools=True)
    assert is_cacheable(request, allowed)
    assert not is_cacheable(request, msgspec.structs.replace(allowed, cache_tools=False))
    assert not is_cacheable(request, msgspec.structs.replace(allowed, cache="off"))
    assert cache_key(request, allowed, "r").question == ""


def test_what_the_template_shows_of_the_time_is_asked_in_chats_only() -> None:
    """Yesterday's answer to what day it is."""
    tenant = Tenant(name="t", semantic=True)
    keys = [cache_key(chat(), tenant, "r", shown) for shown in ("", "30 Nov 2026", "01 Dec 2026")]
    assert len({each.scope for each in keys}) == len({each.digest for each in keys}) == len(keys)
    assert keys[0].digest == key(chat())
    completion = parse_completion(b'{"model":"m","prompt":"What day is it?"}')
    assert cache_key(completion, tenant, "r", "30 Nov 2026") == cache_key(completion, tenant, "r")

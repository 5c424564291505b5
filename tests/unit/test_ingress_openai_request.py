import json
from typing import Any

import pytest

from sub100_ingress.messages import ChatMessage
from sub100_ingress.openai_request import GenerationRequest, parse_chat, parse_completion
from sub100_proto.sampling import Sampling, Structured
from sub100_shared.errors import ClientError

USER = {"role": "user", "content": "hi"}


def chat(**fields: Any) -> GenerationRequest:
    return parse_chat(json.dumps({"model": "m", "messages": [USER], **fields}).encode())


def completion(**fields: Any) -> GenerationRequest:
    return parse_completion(json.dumps({"model": "m", "prompt": "once", **fields}).encode())


def refusal(parse: Any, **fields: Any) -> ClientError:
    with pytest.raises(ClientError) as refused:
        parse(**fields)
    assert refused.value.status == 400
    return refused.value


def test_chat_has_openai_defaults_when_only_required_fields_are_sent() -> None:
    assert chat() == GenerationRequest(
        kind="chat",
        model="m",
        messages=(ChatMessage(role="user", parts=("hi",)),),
        sampling=Sampling(max_tokens=0, temperature=1.0, top_p=1.0),
        max_tokens=None,
        stops=(),
        stream=False,
        include_usage=False,
    )


def test_chat_keeps_every_supported_field() -> None:
    request = chat(
        temperature=0,
        top_p=0.5,
        presence_penalty=-2,
        frequency_penalty=2.0,
        repetition_penalty=1.1,
        seed=-(2**63),
        top_k=40,
        min_tokens=3,
        ignore_eos=True,
        stop_token_ids=[5, 6],
        max_completion_tokens=7,
        stop=["a", "b", "a"],
        stream=True,
        stream_options={"include_usage": True},
        n=1,
    )
    assert request.engine_sampling(7) == Sampling(
        max_tokens=7,
        temperature=0,
        top_p=0.5,
        presence_penalty=-2,
        frequency_penalty=2,
        repetition_penalty=1.1,
        seed=-(2**63),
        top_k=40,
        min_tokens=3,
        ignore_eos=True,
        stop_token_ids=(5, 6),
    )
    assert (request.max_tokens, request.stops) == (7, ("a", "b"))
    assert request.stream
    assert request.include_usage


def test_chat_keeps_what_shapes_and_constrains_the_answer() -> None:
    request = chat(
        n=4,
        logprobs=True,
        top_logprobs=20,
        prompt_logprobs=2,
        min_p=0.25,
        logit_bias={"7": -100, "8": 2.5},
        bad_words=["a b", "c", "c"],
        allowed_token_ids=[7, 8],
        response_format={"type": "json_object"},
    )
    assert request.engine_sampling(3, ((1, 2), (3,))) == Sampling(
        max_tokens=3,
        logprobs=20,
        prompt_logprobs=2,
        min_p=0.25,
        logit_bias={7: -100.0, 8: 2.5},
        bad_words=((1, 2), (3,)),
        allowed_token_ids=(7, 8),
        structured=Structured(kind="json_object"),
    )
    assert (request.n, request.bad_words, request.prompt_top) == (4, ("a b", "c"), 2)
    assert request.structured_param == "response_format"


@pytest.mark.parametrize(
    ("fields", "num_top"), [({"logprobs": True}, 0), ({"logprobs": True, "top_logprobs": 3}, 3), ({}, None)]
)
def test_chat_asks_for_logprobs_with_and_without_alternatives(
    fields: dict[str, Any], num_top: int | None
) -> None:
    assert chat(**fields).sampling.logprobs == num_top


def test_completion_scores_an_echoed_prompt_as_it_scores_the_answer() -> None:
    def asked(**fields: Any) -> tuple[int | None, int | None, bool]:
        request = completion(echo=True, **fields)
        return request.sampling.logprobs, request.sampling.prompt_logprobs, request.is_decode_alone

    assert asked() == (None, None, False)
    assert asked(logprobs=2) == (2, 2, True)
    assert asked(logprobs=2, prompt_logprobs=5) == (2, 5, True)


def test_several_answers_and_scored_prompts_are_for_one_worker() -> None:
    assert not chat(logprobs=True).is_decode_alone
    assert chat(n=2).is_decode_alone
    assert chat(prompt_logprobs=0).is_decode_alone


def test_chat_refuses_prompt_logprobs_with_stream() -> None:
    assert refusal(chat, prompt_logprobs=1, stream=True).param == "prompt_logprobs"


def test_chat_takes_top_k_of_minus_one_as_off() -> None:
    assert chat(top_k=-1).sampling.top_k == 0


def test_chat_takes_null_as_default_for_every_optional_field() -> None:
    optional = (
        "temperature top_p presence_penalty frequency_penalty repetition_penalty seed top_k min_tokens "
        "ignore_eos stop_token_ids max_tokens max_completion_tokens stop stream stream_options n tools "
        "tool_choice parallel_tool_calls logprobs top_logprobs response_format logit_bias functions "
        "modalities audio prediction reasoning_effort"
    )
    assert chat(**dict.fromkeys(optional.split())) == chat()


@pytest.mark.parametrize(
    "fields",
    [
        {"store": True, "metadata": {"a": "b"}, "service_tier": "auto", "client_metadata": {}, "user": "u"},
        {"kv_transfer_params": {"remote_host": "evil"}, "logits_processors": ["os.system"], "priority": -9},
        {"cache_salt": "other-tenant", "request_id": "x", "parallel_tool_calls": True},
        {"messages": [{**USER, "id": "1", "agent": "a", "traceId": "t", "metadata": {"deep": [[[]]]}}]},
    ],
)
def test_chat_ignores_and_drops_unknown_fields(fields: dict[str, Any]) -> None:
    assert chat(**fields) == chat()


NEUTRAL: list[dict[str, Any]] = [
    {"tools": []},
    {"tools": [], "tool_choice": "auto"},
    {"tool_choice": "none"},
    {"functions": []},
    {"response_format": {"type": "text"}},
    {"logprobs": False, "top_logprobs": 0},
    {"logit_bias": {}},
    {"modalities": ["text"]},
    {"min_p": 0.0},
    {"skip_special_tokens": True},
]


@pytest.mark.parametrize("fields", NEUTRAL, ids=str)
def test_chat_accepts_known_fields_that_ask_for_nothing(fields: dict[str, Any]) -> None:
    assert chat(**fields) == chat()


UNSUPPORTED: list[dict[str, Any]] = [
    {"functions": [{"name": "f"}]},
    {"function_call": {"name": "f"}},
    {"best_of": 3},
    {"modalities": ["text", "audio"]},
    {"audio": {"voice": "x"}},
    {"prediction": {"type": "content", "content": "x"}},
    {"reasoning_effort": "high"},
    {"reasoning": {"effort": "low"}},
    {"chat_template": "{{ messages }}"},
    {"chat_template_kwargs": {"enable_thinking": True}},
    {"continue_final_message": True},
    {"use_beam_search": True},
    {"echo": True},
]


@pytest.mark.parametrize("fields", UNSUPPORTED, ids=str)
def test_chat_names_the_known_field_that_is_not_served(fields: dict[str, Any]) -> None:
    error = refusal(chat, **fields)
    assert (error.code, error.param) == ("unsupported_parameter", *fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"suffix": "x"},
        {"best_of": 2},
    ],
    ids=str,
)
def test_completion_names_the_known_field_that_is_not_served(fields: dict[str, Any]) -> None:
    error = refusal(completion, **fields)
    assert (error.code, error.param) == ("unsupported_parameter", next(iter(fields)))


WRONG_VALUES: dict[tuple[str, str], list[Any]] = {
    ("max_tokens", "invalid_value"): [0, -1, 2**31, 2**70],
    ("max_tokens", "invalid_type"): [1.5, "5", True, [], {}],
    ("max_completion_tokens", "invalid_value"): [0, -1],
    ("temperature", "invalid_value"): [-1, 2.1, 1e9],
    ("temperature", "invalid_type"): ["1", True, [0]],
    ("top_p", "invalid_value"): [0, -0.1, 1.01],
    ("presence_penalty", "invalid_value"): [-2.1, 2.1],
    ("frequency_penalty", "invalid_value"): [-2.1, 2.1],
    ("repetition_penalty", "invalid_value"): [0, -1, 11],
    ("seed", "invalid_value"): [2**63, -(2**63) - 1, 2**70],
    ("seed", "invalid_type"): [1.5],
    ("n", "invalid_value"): [0, -1, 17, 100_000],
    ("n", "invalid_type"): ["1"],
    ("stop", "invalid_value"): ["", ["a"] * 5, ["x"] * 10_000, "x" * 1025],
    ("stop", "invalid_type"): [5],
    ("stream", "invalid_type"): ["yes", 1],
    ("stream_options", "invalid_value"): [{"include_usage": True}],
    ("top_k", "invalid_value"): [-2],
    ("min_tokens", "invalid_value"): [-1],
    ("stop_token_ids", "invalid_value"): [[1] * 65],
    ("logprobs", "invalid_type"): [0, 5, "yes"],
    ("top_logprobs", "invalid_value"): [3, -1, 21, 1_000_000],
    ("prompt_logprobs", "invalid_value"): [-1, 21],
    ("min_p", "invalid_value"): [-0.1, 1.1],
    ("logit_bias", "invalid_value"): [{"5": 101}, {"5": -101}, {str(i): 1 for i in range(301)}],
    ("logit_bias", "invalid_type"): [{"x": 1}, {"5": "1"}, [5], {"1.5": 0}],
    ("bad_words", "invalid_value"): [["x"] * 65],
    ("bad_words", "invalid_type"): ["x"],
    ("allowed_token_ids", "invalid_value"): [[], [1] * 4097],
    ("model", "invalid_value"): [""],
    ("model", "invalid_type"): [5],
    ("messages", "invalid_value"): [[]],
    ("messages", "invalid_type"): ["hi", None],
}
WRONG = [(field, value, code) for (field, code), values in WRONG_VALUES.items() for value in values]


@pytest.mark.parametrize(("field", "value", "code"), WRONG, ids=lambda value: str(value)[:20])
def test_chat_names_the_field_with_a_wrong_value(field: str, value: Any, code: str) -> None:
    error = refusal(chat, **{field: value})
    assert (error.code, error.param) == (code, field)
    assert len(error.message) < 400


@pytest.mark.parametrize(
    ("field", "value", "param"),
    [
        ("stop", ["a", ""], "stop[1]"),
        ("stop", ["a", 5], "stop[1]"),
        ("stop_token_ids", [1, -1], "stop_token_ids[1]"),
        ("bad_words", ["a", ""], "bad_words[1]"),
        ("allowed_token_ids", [-1], "allowed_token_ids[0]"),
    ],
)
def test_chat_names_the_item_with_a_wrong_value(field: str, value: Any, param: str) -> None:
    assert refusal(chat, **{field: value}).param == param


@pytest.mark.parametrize(("body", "param"), [({"messages": [USER]}, "model"), ({"model": "m"}, "messages")])
def test_chat_names_the_missing_field(body: dict[str, Any], param: str) -> None:
    with pytest.raises(ClientError) as refused:
        parse_chat(json.dumps(body).encode())
    assert (refused.value.code, refused.value.param) == ("missing_required_parameter", param)


def test_chat_refuses_two_different_limits_and_accepts_two_equal_ones() -> None:
    assert refusal(chat, max_tokens=5, max_completion_tokens=6).param == "max_tokens"
    assert chat(max_tokens=5, max_completion_tokens=5).max_tokens == 5


# -- completions


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [("a", "a"), (["a"], "a"), ([1, 2], (1, 2)), ([[1, 2]], (1, 2)), ([7], (7,))],
)
def test_completion_takes_one_prompt_in_any_form(prompt: Any, expected: Any) -> None:
    assert completion(prompt=prompt).prompt == expected


@pytest.mark.parametrize(
    ("prompt", "code"),
    [
        ("", "invalid_value"),
        ([], "invalid_value"),
        ([""], "invalid_value"),
        ([[]], "invalid_value"),
        (["a", "b"], "unsupported_value"),
        ([[1], [2]], "unsupported_value"),
        ([1, "a"], "invalid_type"),
        ([1.5], "invalid_type"),
        ([True], "invalid_type"),
        ([None], "invalid_type"),
        ([[["a"]]], "unsupported_value"),
        (5, "invalid_type"),
        (None, "invalid_type"),
    ],
)
def test_completion_refuses_other_prompts(prompt: Any, code: str) -> None:
    error = refusal(completion, prompt=prompt)
    assert (error.code, error.param) == (code, "prompt")


# -- limits


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (chat(), 90),
        (chat(max_tokens=90), 90),
        (chat(max_tokens=5), 5),
        (completion(), 16),
        (completion(max_tokens=40), 40),
    ],
)
def test_max_tokens_resolves_against_the_context(request_: GenerationRequest, expected: int) -> None:
    assert request_.resolve_max_tokens(10, 100) == expected


def test_max_tokens_of_a_completion_shrinks_to_the_room_left_when_not_given() -> None:
    assert completion().resolve_max_tokens(95, 100) == 5


@pytest.mark.parametrize(
    ("request_", "num_prompt_tokens", "param"),
    [
        (chat(max_tokens=91), 10, "messages"),
        (chat(max_tokens=2**31 - 1), 10, "messages"),
        (chat(), 100, "messages"),
        (completion(), 100, "prompt"),
        (completion(), 5000, "prompt"),
    ],
)
def test_max_tokens_refuses_what_does_not_fit(
    request_: GenerationRequest, num_prompt_tokens: int, param: str
) -> None:
    error = refusal(request_.resolve_max_tokens, num_prompt_tokens=num_prompt_tokens, max_model_len=100)
    assert (error.code, error.param) == ("context_length_exceeded", param)


def test_max_tokens_refuses_an_empty_prompt_and_a_minimum_above_it() -> None:
    assert refusal(chat().resolve_max_tokens, num_prompt_tokens=0, max_model_len=9).code == "invalid_value"
    greedy = chat(min_tokens=9, max_tokens=8)
    assert refusal(greedy.resolve_max_tokens, num_prompt_tokens=1, max_model_len=99).param == "min_tokens"

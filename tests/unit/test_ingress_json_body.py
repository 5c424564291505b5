import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.patience import at_best

from sub100_ingress import json_body
from sub100_shared.errors import ClientError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e50, 1e50) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=25,
)


@given(st.dictionaries(st.text(), JSON, max_size=5), st.booleans())
def test_load_gives_what_was_written_for_valid_objects(value: dict[str, object], ascii_only: bool) -> None:
    assert json_body.load(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@given(st.integers(1, 64), st.sampled_from([("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")]))
def test_load_accepts_nesting_up_to_the_limit(depth: int, kind: tuple[str, str]) -> None:
    opening, closing = kind
    rounds = (depth - 1) // (opening.count("[") + opening.count("{"))
    body = '{"x":' + opening * rounds + "1" + closing * rounds + "}"
    assert json_body.load(body.encode())["x"] is not None


@pytest.mark.parametrize("kind", [("[", "]"), ('{"a":', "}"), ("[1,", ",[]]")], ids=str)
def test_load_draws_the_line_at_64_levels_whatever_stands_beside(kind: tuple[str, str]) -> None:
    opening, closing = kind
    siblings = ",".join(["[[{}]]"] * 200)

    def body(depth: int) -> bytes:
        nested = opening * (depth - 2) + "[]" + closing * (depth - 2)
        return f'{{"x":{nested},"y":[{siblings}]}}'.encode()

    assert len(json_body.load(body(64))["y"]) == 200
    with pytest.raises(ClientError, match="deeper than 64"):
        json_body.load(body(65))


def _nested(depth: int, before: str, opening: str, filler: str, closing: str, after: str) -> bytes:
    return (before + opening * depth + filler + closing * depth + after).encode()


BOMBS = {
    f"{name}-{depth}": _nested(depth, *shape)
    for depth in (100, 1_000, 20_000, 100_000)
    for name, shape in {
        "arrays": ('{"x":', "[", "1", "]", "}"),
        "objects": ('{"x":', '{"a":', "1", "}", "}"),
        "mixed": ('{"x":', '[{"a":', "1", "}]", "}"),
        "wide": ('{"x":', "[1,[],", "1", "]", "}"),
        "unclosed": ("", "[", "", "", ""),
        "unopened": ("{}", "", "", "]", ""),
    }.items()
}
HOSTILE = {
    **BOMBS,
    "empty": b"",
    "array": b"[]",
    "string": b'"x"',
    "not json": b"{model: 1}",
    "trailing": b"{} {}",
    "nan": b'{"x":NaN}',
    "infinity": b'{"x":-Infinity}',
    "huge exponent": b'{"x":1e400}',
    "huge exponent in a list": b'{"x":[1,1E+400]}',
    "10 MB integer": b'{"x":' + b"7" * 10_000_000 + b"}",
    "10 MB fraction": b'{"x":0.' + b"3" * 10_000_000 + b"}",
    "non-utf8": b'{"x":"\xff"}',
    "lone surrogate": rb'{"x":"\ud800"}',
    "lone low surrogate": rb'{"x":"\udc00 and more"}',
    "encoded surrogate": b'{"x":"\xed\xa0\x80"}',
    "million keys": b"{" + b",".join(b'"k%d":1' % i for i in range(1_000_000)) + b"}",
    "million numbers and more": b'{"x":[' + b"1," * 1_100_000 + b"1]}",
    "16 MB of brackets": b"[" * 2**24,
    "duplicate key": b'{"x":1,"x":2}',
    "duplicate key by escape": rb'{"x":1,"\u0078":2}',
    "duplicate key inside": b'{"x":[{"a":{"b":1,"b":1}}]}',
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
def test_load_refuses_hostile_bodies_within_100_ms(body: bytes) -> None:
    def spent_s() -> float:
        started = time.thread_time()
        with pytest.raises(ClientError) as refused:
            json_body.load(body)
        spent_s = time.thread_time() - started
        assert (refused.value.code, refused.value.status) == ("invalid_json", 400)
        assert len(refused.value.message) < 200
        return spent_s

    at_best(spent_s, 0.1, "seconds of CPU")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 1000 + "{" * 1000,
        'a "quoted" word and a \\ backslash \\" \\\\',
        "\\",
        "\\\\",
        "1" * 5000 + "e999",
        '"a":1,' * 1000,
    ],
)
def test_load_ignores_what_looks_like_structure_inside_strings(text: str) -> None:
    body = json.dumps({"content": text, "last": [text, text]}).encode()
    assert json_body.load(body) == {"content": text, "last": [text, text]}


def test_load_accepts_as_many_token_ids_as_a_long_context_has() -> None:
    ids = list(range(200_000))
    assert json_body.load(json.dumps({"prompt": ids}).encode()) == {"prompt": ids}


@pytest.mark.parametrize(
    ("text", "half"),
    [(r"\ud800", r"\ud800"), (r"a\uDFFF", r"\uDFFF"), (r"\ud83dx", r"\ud83d"), (r"\ud83d\ud83d", r"\ud83d")],
)
def test_half_of_a_surrogate_pair_is_refused_by_name(text: str, half: str) -> None:
    with pytest.raises(ClientError, match="half a surrogate pair") as refused:
        json_body.load(f'{{"a": "{text}"}}'.encode())
    assert refused.value.code == "invalid_json"
    assert half in refused.value.message


def test_whole_surrogate_pairs_and_escaped_backslashes_are_text() -> None:
    assert json_body.load(rb'{"a": "\ud83d\ude00", "b": "\\ud800"}') == {"a": "\U0001f600", "b": r"\ud800"}

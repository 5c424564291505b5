"""Stop strings and characters over every border that text can cross: tokens, chunks, prefill | decode."""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.bus_watch import BusWatch
from tests.e2e.raw_http import Answer, deltas, post
from tests.e2e.system import MODEL, PATIENT, sim_only
from tests.patience import eventually
from tests.stack import Stack, running_stack
from tokenizers import Tokenizer

from sub100_proto.jobs import Abort, ReleaseKv

MANY_BYTES = "🇳🇴🇯🇵👨‍👩‍👧‍👦 e\u0301\u0302 𠮷𡈽 ภาษาไทย fin"
"""Flags, a ZWJ family, stacked accents, rare CJK, Thai: nearly every character spans tokens."""


def ask(stack: Stack, prompt: str, *, tenant: str = "plain", **fields: Any) -> Answer:
    body = {"model": MODEL, "messages": [{"role": "user", "content": prompt}], "temperature": 0} | fields
    answer = post(stack.url, body, stack.keys[tenant])
    assert answer.status == 200, answer.body
    return answer


def both_ways(stack: Stack, prompt: str, **fields: Any) -> tuple[str, str]:
    """Text and finish reason of the answer; streamed and not must agree."""
    choice = ask(stack, prompt, **fields).json["choices"][0]
    streamed = ask(stack, prompt, **fields, stream=True)
    assert streamed.text == choice["message"]["content"]
    assert streamed.finish_reasons == [choice["finish_reason"]]
    return streamed.text, choice["finish_reason"]


@pytest.fixture(scope="module")
def spoken(stack: Stack) -> tuple[str, list[str]]:
    """A prompt whose first token already is text, and the deltas of its answer of 24 tokens."""
    for i in range(50):
        prompt = f"Tell me something, number {i}."
        first = ask(stack, prompt, max_tokens=1, ignore_eos=True, stream=True).text
        pieces = deltas(ask(stack, prompt, max_tokens=24, ignore_eos=True, stream=True).chunks)
        if first and len(pieces) > 6 and "\ufffd" not in "".join(pieces):
            return prompt, pieces
    pytest.fail("no prompt is answered with text from the first token on")


def test_stop_string_over_a_chunk_border_cuts_before_it(stack: Stack, spoken: tuple[str, list[str]]) -> None:
    """A02: no prefix of the stop string gets out, wherever the tokens' borders lie."""
    prompt, pieces = spoken
    text = "".join(pieces)
    for i in range(1, 6):
        stop = pieces[i][-1:] + pieces[i + 1][:2]
        found, reason = both_ways(stack, prompt, max_tokens=24, ignore_eos=True, stop=stop)
        assert (found, reason) == (text[: text.index(stop)], "stop"), stop


def test_stop_string_that_spans_many_chunks_cuts_before_it(
    stack: Stack, spoken: tuple[str, list[str]]
) -> None:
    """A02: all of it is held back until it is complete."""
    prompt, pieces = spoken
    text = "".join(pieces)
    stop = "".join(pieces[2:6])
    found, reason = both_ways(stack, prompt, max_tokens=24, ignore_eos=True, stop=["\x00", stop])
    assert (found, reason) == (text[: text.index(stop)], "stop")


def test_a_mere_prefix_of_a_stop_string_at_the_end_is_delivered(
    stack: Stack, spoken: tuple[str, list[str]]
) -> None:
    """A02: what was held back comes when the answer ends without the rest."""
    prompt, pieces = spoken
    text = "".join(pieces)
    stop = text[-4:] + "\x00"
    assert both_ways(stack, prompt, max_tokens=24, ignore_eos=True, stop=stop) == (text, "length")


def test_stop_inside_the_first_token_ends_before_decode(
    stack: Stack, bus: BusWatch, spoken: tuple[str, list[str]]
) -> None:
    """A02: the token that prefill makes is matched too: empty text, and no decode job."""
    prompt, pieces = spoken
    mark = bus.mark()
    answer = ask(stack, prompt, max_tokens=24, stop=pieces[0][0])
    streamed = ask(stack, prompt, max_tokens=24, stop=pieces[0][0], stream=True)
    bus.wait(lambda: len(bus.since(mark, ".prefill.job.")) == 2, "two prefill jobs")
    # The KV that waited for decode is given back, and nothing is aborted: prefill is done.
    # Whatever was published before that has arrived here too.
    bus.wait(lambda: len(bus.told_since(mark, "prefill", ReleaseKv)) == 2, "two releases")
    assert bus.told_since(mark, "prefill", Abort) == []
    assert bus.since(mark, ".decode.job.") == []
    choice = answer.json["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("", "stop")
    assert answer.json["usage"]["completion_tokens"] == 1
    assert (streamed.text, streamed.finish_reasons) == ("", ["stop"])


def test_stop_strings_wait_for_the_minimum_of_tokens_over_the_hand_over(
    stack: Stack, spoken: tuple[str, list[str]]
) -> None:
    """A02: none that ends in the first ``min_tokens`` tokens cuts, whichever worker they come from."""
    prompt, pieces = spoken
    text = "".join(pieces)
    stop = pieces[0][:1]
    fields = {"max_tokens": 24, "ignore_eos": True, "stop": stop}
    assert both_ways(stack, prompt, **fields) == ("", "stop")
    assert both_ways(stack, prompt, **fields, min_tokens=24) == (text, "length")
    until = ask(stack, prompt, max_tokens=12, ignore_eos=True).json["choices"][0]["message"]["content"]
    later = text.find(stop, len(until))
    expected = (text, "length") if later < 0 else (text[:later], "stop")
    assert both_ways(stack, prompt, **fields, min_tokens=12) == expected


@pytest.fixture(scope="module")
def scripted(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, int]]:
    """A stack that always answers MANY_BYTES and stops, and how many tokens that takes."""
    script = tmp_path_factory.mktemp("script") / "answer.txt"
    script.write_text(MANY_BYTES, encoding="utf-8")
    tokenizer = Tokenizer.from_file(str(tiny_model / "tokenizer.json"))
    num_tokens = len(tokenizer.encode(MANY_BYTES, add_special_tokens=False).ids)
    env = PATIENT | {
        "SUB100_SIM_ANSWER_FILE": str(script),
        "SUB100_SIM_ANSWER_MIN_TOKENS": str(num_tokens),
        "SUB100_SIM_ANSWER_MAX_TOKENS": str(num_tokens),
    }
    with running_stack(tiny_model, env=env) as stack:
        yield stack, num_tokens


@sim_only
def test_characters_that_span_tokens_arrive_whole(scripted: tuple[Stack, int]) -> None:
    """A03: no delta holds a replacement character; each data line is UTF-8 by itself (``events``)."""
    stack, num_tokens = scripted
    assert num_tokens > len(MANY_BYTES)
    answer = ask(stack, "x", stream=True)
    assert answer.text == MANY_BYTES
    assert answer.finish_reasons == ["stop"]
    assert not any("\ufffd" in piece for piece in deltas(answer.chunks))
    assert ask(stack, "x").json["choices"][0]["message"]["content"] == MANY_BYTES


@sim_only
def test_limit_inside_a_character_never_shows_half_of_it(scripted: tuple[Stack, int]) -> None:
    """A03: max_tokens 1, 2, 3, ... end before, at and after the hand-over, inside a flag of 8 bytes."""
    stack, _ = scripted
    texts = [both_ways(stack, "x", max_tokens=n) for n in range(1, 12)]
    for text, reason in texts:
        assert reason == "length"
        assert MANY_BYTES.startswith(text)
    assert [len(text) for text, _ in texts] == sorted(len(text) for text, _ in texts)
    assert texts[0][0] == ""
    assert texts[-1][0]


@sim_only
def test_stop_inside_a_character_that_spans_tokens_cuts_before_it(scripted: tuple[Stack, int]) -> None:
    """A02 and A03 together: the stop string is one emoji of several tokens."""
    stack, _ = scripted
    for stop in ("🇴", "\u200d👩", "\u0302", "𡈽", "ไ"):
        assert both_ways(stack, "x", stop=stop) == (MANY_BYTES[: MANY_BYTES.index(stop)], "stop")


@sim_only
def test_replay_from_the_cache_has_the_same_deltas(scripted: tuple[Stack, int]) -> None:
    """A03: the cached answer is the same sequence of whole characters. This engine takes no time: on a busy
    machine its first token may be before a look-up."""
    stack, num_tokens = scripted
    prompt = secrets.token_hex(8)
    fields: dict[str, Any] = {"tenant": "demo", "stream": True, "stream_options": {"include_usage": True}}
    miss = ask(stack, prompt, **fields)
    assert "cache" not in miss.headers["x-sub100-tier"]

    def replayed() -> Answer | None:
        answer = ask(stack, prompt, **fields)
        return answer if "cache" in answer.headers["x-sub100-tier"] else None

    hit = eventually(replayed, "a hit")
    assert deltas(hit.chunks) == deltas(miss.chunks)
    assert hit.text == MANY_BYTES
    assert hit.finish_reasons == ["stop"]
    assert hit.chunks[-1]["usage"]["completion_tokens"] == num_tokens

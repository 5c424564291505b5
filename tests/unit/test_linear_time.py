"""What reads text from strangers takes time in proportion to it, whatever they write: Python runs nothing
else meanwhile (E3)."""

import itertools
import time
import unicodedata
from collections.abc import Callable
from typing import Final

import msgspec
import pytest

from sub100_cache.guard import tokens
from sub100_ingress import cache_key, json_body, repetition
from sub100_ingress.call_text import CallText
from sub100_ingress.tool_text import HermesCalls
from sub100_ingress.wire_errors import client_error
from sub100_shared import wording
from sub100_shared.errors import ClientError
from sub100_shared.nfc import nfc

_SHORT: Final = 256
_TIMES: Final = 16
_MAX_RATIO: Final = 64
"""Of 16 times the text: linear is 16, quadratic 256."""
_TOO_SHORT_TO_TELL_S: Final = 100e-6


def _load(text: str) -> None:
    try:
        json_body.load(b'{"a":"' + text.encode() + b'"}')
        json_body.load(text.encode())
    except ClientError:
        return


READERS: Final[dict[str, Callable[[str], object]]] = {
    "weight": repetition.weight,
    "client_error": lambda text: client_error(msgspec.ValidationError(text)),
    "load": _load,
    "normalise": cache_key.normalise,
    "works_on_wording": wording.works_on_wording,
    "may_work_on_wording": wording.may_work_on_wording,
    "plain": tokens.plain,
    "looks_like_code": lambda text: tokens.looks_like_code(tokens.written(text)),
    "has_grouped_number": tokens.has_grouped_number,
    "split": tokens.split,
    "call": lambda text: CallText({"f"}).push(text),
    "calls": lambda text: HermesCalls({"f"}).push(text),
}
UNITS: Final = {
    "blanks": " ",
    "lines": "\n",
    "digits": "1",
    "letters": "a",
    "commas": ",",
    "grouped": "1,111,",
    "hyphens": "a-",
    "questions": "?",
    "spaced": "a ,",
    "percent": "1%?",
    "brackets": "{",
    "lists": "[",
    "ends": "}",
    "groups": ")",
    "counts": "){1, ",
    "backslashes": "\\",
    "quotes": '"',
    "halves": "\\ud800",
    "exponents": "1e+",
    "paths": " - at `$",
    "marks": "\u0301\u0316",
    "symbols": "\u2014",
    "calls": "<tool_call>{",
}
STARTS: Final = ("", "a ", "{", '{"name":"', "1", " - at `$")
ENDS: Final = ("\n", "x")


@pytest.mark.parametrize("reader", READERS)
def test_reading_takes_time_in_proportion_to_hostile_text(reader: str) -> None:
    read = READERS[reader]
    slow = {}
    for start, (name, unit), end in itertools.product(STARTS, UNITS.items(), ENDS):
        num = _SHORT // len(unit)
        took_s = _cpu_s(read, start + unit * num * _TIMES + end)
        if took_s <= _MAX_RATIO * _TOO_SHORT_TO_TELL_S:
            continue
        short_s = max(_cpu_s(read, start + unit * num + end), _TOO_SHORT_TO_TELL_S)
        took_s = min(took_s, _cpu_s(read, start + unit * num * _TIMES + end))
        if took_s > _MAX_RATIO * short_s:
            slow[start, name, end] = took_s
    assert not slow


def _cpu_s(read: Callable[[str], object], text: str) -> float:
    """The thread's own time, which a busy machine hardly changes."""
    start_s = time.thread_time()
    read(text)
    return time.thread_time() - start_s


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("e\u0301", "\u00e9"),
        ("a\u0316\u0301" * 1000, "\u00e1\u0316" * 1000),
        ("a" + "\u0301\u0316" * 15, "\u00e1" + "\u0316" * 15 + "\u0301" * 14),
        ("e\u0301" + "\u0301\u0316" * 15, "e\u0301" + "\u0301\u0316" * 15),
        ("\u304b\u3099" * 100, "\u304c" * 100),
        ("10\u00b2", "10\u00b2"),
    ],
)
def test_nfc_composes_what_languages_write(given: str, expected: str) -> None:
    assert nfc(given) == expected


def test_nfc_knows_every_mark_that_could_have_to_be_sorted() -> None:
    """Whatever Unicode this Python has: 31 of any mark are left as they are."""
    marks = [mark for mark in map(chr, range(0x110000)) if unicodedata.combining(mark)]
    assert len(marks) > 800
    assert [mark for mark in marks if nfc("e\u0301" + mark * 31) != "e\u0301" + mark * 31] == []

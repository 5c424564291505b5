import pytest
from hypothesis import given
from hypothesis import strategies as st

from sub100_ingress.cache_control import NO_LIMITS, CacheControl, parse

NO_STORE = CacheControl(may_read=False, may_write=False)
NO_CACHE = CacheControl(may_read=False)
STALE = CacheControl(may_read=False, max_age_s=0)


def aged(seconds: int) -> CacheControl:
    return CacheControl(max_age_s=seconds)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", NO_LIMITS),
        ("no-store", NO_STORE),
        ("No-Store", NO_STORE),
        ("no-cache", NO_CACHE),
        ("max-age=60", aged(60)),
        ('max-age="60"', aged(60)),
        ("max-age = 60 ", aged(60)),
        ("max-age=0", STALE),
        ("no-cache, no-store", NO_STORE),
        (" ,, no-cache ,", NO_CACHE),
        ("no-cache, max-age=60", CacheControl(may_read=False, max_age_s=60)),
        ("max-age=60, max-age=5", aged(5)),
        ("max-age=99999999999999999999999", aged(2**31)),
        ("max-age", STALE),
        ("max-age=", STALE),
        ("max-age=-1", STALE),
        ("max-age=1.5", STALE),
        ("max-age=soon", STALE),
        ("max-age=\u0665", STALE),
        ("max-stale=60, only-if-cached, no-transform, x=1", NO_LIMITS),
        ("no-storex", NO_LIMITS),
    ],
)
def test_cache_control_is_read_as_the_rfc_says(value: str, expected: CacheControl) -> None:
    assert parse([value]) == expected


def test_cache_control_takes_all_headers_together() -> None:
    assert parse(["max-age=60", "no-cache"]) == CacheControl(may_read=False, max_age_s=60)
    assert parse([]) is NO_LIMITS


@given(st.lists(st.text()))
def test_cache_control_never_raises(values: list[str]) -> None:
    control = parse(values)
    assert control.may_write or not control.may_read

"""A sealed value is believed under the key and the secret that it was sealed with, and whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sub100_cache.store.seal import SEAL_BYTES, Seal

DIGEST, OTHER = bytes(32), bytes(31) + b"\1"
SECRET = b"a secret of sixteen bytes or more"


@pytest.mark.parametrize("seal", [Seal(), Seal(SECRET)], ids=["checksum", "keyed"])
@given(value=st.binary(max_size=200), tenant=st.text(max_size=20))
def test_seal_gives_back_what_was_sealed_and_to_nobody_else(seal: Seal, value: bytes, tenant: str) -> None:
    sealed = seal.closed(value, tenant, DIGEST)

    opened = seal.opened(sealed, tenant, DIGEST)
    assert opened is not None
    assert bytes(opened) == value
    assert len(sealed) == SEAL_BYTES + len(value)
    assert seal.opened(sealed, tenant + "x", DIGEST) is None
    assert seal.opened(sealed, tenant, OTHER) is None
    assert Seal(b"another secret of sixteen bytes").opened(sealed, tenant, DIGEST) is None


def test_seal_tells_a_tenants_name_from_the_value_behind_it() -> None:
    seal = Seal()
    sealed = seal.closed(b"bvalue", "a", DIGEST)

    assert seal.opened(sealed[:SEAL_BYTES] + sealed[SEAL_BYTES + 1 :], "ab", DIGEST) is None


@pytest.mark.parametrize("size", [0, 1, SEAL_BYTES - 1, SEAL_BYTES])
def test_seal_refuses_what_is_too_short_to_have_one(size: int) -> None:
    assert Seal().opened(bytes(size), "t", DIGEST) is None


def test_seal_is_the_same_in_every_replica() -> None:
    assert Seal(SECRET).closed(b"value", "t", DIGEST) == Seal(SECRET).closed(b"value", "t", DIGEST)
    assert Seal(SECRET).closed(b"value", "t", DIGEST) != Seal().closed(b"value", "t", DIGEST)

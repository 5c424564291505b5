"""What is written together lies in one slot of a Redis Cluster; what is not one tenant's is told apart."""

from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from sub100_cache.store.entries import (
    counts_key,
    digest_of,
    entry_key,
    entry_prefix,
    generations_key,
    ledger_keys,
    ledger_names,
    vector_key,
    wording_key,
)

tenants = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
digests = st.binary(min_size=32, max_size=32)


@given(tenants, digests, digests)
def test_all_keys_of_a_tenant_lie_in_one_slot(tenant: str, one: bytes, other: bytes) -> None:
    keys = [
        entry_key(tenant, one),
        entry_key(tenant, other),
        vector_key("model-384", tenant, one),
        wording_key(tenant, one),
        generations_key(tenant),
        counts_key(tenant),
        *ledger_keys(tenant),
    ]

    assert len({key_slot(key.encode()) for key in keys}) == 1


@given(tenants, digests, st.text("abc-123", min_size=1))
def test_scripts_make_the_same_keys(tenant: str, digest: bytes, space: str) -> None:
    entries, vectors, wordings, tag = ledger_names(tenant)

    assert entries + digest.hex() == entry_key(tenant, digest)
    assert f"{vectors}{space}:{tag}{digest.hex()}" == vector_key(space, tenant, digest)
    assert wordings + tag + digest.hex() == wording_key(tenant, digest)


@given(tenants, tenants, digests)
def test_keys_of_two_tenants_differ_and_none_begins_like_the_others(
    one: str, other: str, digest: bytes
) -> None:
    assert (entry_key(one, digest) == entry_key(other, digest)) == (one == other)
    assert entry_key(one, digest).startswith(entry_prefix(other)) == (one == other)
    assert digest_of(entry_key(one, digest)) == digest

"""Fields are only ever added: an old reader takes a new writer's message, and the reverse."""

import inspect
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sub100_proto import blocks, cache, codec, fleet, headers, jobs, kv, placement, stream, subjects, tokens
from sub100_proto._struct import HotMessage, Message
from sub100_proto.budget import Budget
from sub100_proto.sampling import Sampling

BUDGET = Budget(total_ms=100.0, remaining_ms=80.0, allotted_ms=40.0)
HANDLE = kv.KvHandle(connector="c", key="k", num_tokens=5, layout="l", lease_s=30.0, endpoint="127.0.0.1:1")
WORKER = placement.WorkerRef(worker_id="w", epoch=3)
ANSWER = cache.CachedAnswer(
    model="m", pieces=("a", "b"), finish_reason="stop", num_prompt_tokens=3, num_completion_tokens=2
)

EXAMPLES: dict[str, list[Any]] = {
    "decode_cache_lookup": [cache.CacheLookup(request_id="r", tenant="t", digest=b"d" * 32, budget=BUDGET)],
    "decode_cache_reply": [
        cache.CacheHit(answer=ANSWER, tier="exact", age_s=1.5),
        cache.CacheMiss(
            reason="absent",
            spent_ms=0.5,
            near=cache.NearMiss(digest=b"d" * 32, question="q", similarity=0.97, rule="negation"),
        ),
    ],
    "decode_cache_write": [
        cache.CacheFill(request_id="r", tenant="t", digest=b"d" * 32, answer=ANSWER, ttl_s=60),
        cache.CacheAlias(tenant="t", digest=b"d" * 32, target=b"e" * 32, generation=b"g"),
        cache.CacheObserved(tenant="t", tier="semantic", agreed=False, similarity=0.95),
    ],
    "decode_cache_replica": [
        cache.CacheReplica(
            origin="eu",
            stored_unix_s=1.5,
            fill=cache.CacheFill(request_id="r", tenant="t", digest=b"d" * 32, answer=ANSWER, ttl_s=60),
        ),
        cache.CacheAliasReplica(
            origin="eu",
            judged_unix_s=1.5,
            alias=cache.CacheAlias(tenant="t", digest=b"d" * 32, target=b"e" * 32, generation=b"g"),
        ),
    ],
    "decode_cache_admin": [
        cache.CacheInvalidate(tenant="t", erase=True),
        cache.CacheStatsQuery(tenant="t"),
    ],
    "decode_cache_admin_reply": [
        cache.CacheInvalidated(num_erased=3),
        cache.CacheStats(num_lookups=3, num_exact_hits=1),
    ],
    "decode_cached_answer": [ANSWER],
    "decode_place_request": [
        placement.PlaceRequest(
            request_id="r",
            tenant="t",
            model="m",
            num_prompt_tokens=3,
            block_hashes=b"12345678",
            max_tokens=5,
            budget=BUDGET,
            avoid=("w1",),
            placement_id="p",
        )
    ],
    "decode_place_reply": [
        placement.Placement(placement_id="p", decode=WORKER, prefill=WORKER, predicted_ttft_ms=9.0),
        placement.Rejected(code="no_capacity", reason="none", retry_after_s=2.0),
    ],
    "decode_placed": [placement.Placed(scheduler_id="s", placement_id="p", decode="w")],
    "decode_settled": [placement.Settled(placement_id="p", phase="prefill", prefill_ms=3.0)],
    "decode_job": [
        jobs.PrefillJob(
            attempt="a",
            request_id="r",
            events="e",
            model="m",
            prompt=b"\x01\0\0\0",
            sampling=Sampling(max_tokens=4, seed=7),
            budget=BUDGET,
            epoch=3,
        ),
        jobs.DecodeJob(
            attempt="a",
            request_id="r",
            events="e",
            model="m",
            prompt=b"\x01\0\0\0",
            sampling=Sampling(max_tokens=4),
            budget=BUDGET,
            epoch=3,
            output=b"\x02\0\0\0",
            kv=HANDLE,
        ),
    ],
    "decode_claim": [
        jobs.Accepted(worker_id="w", epoch=3),
        jobs.Busy(worker_id="w", epoch=3, code="queue_full"),
    ],
    "decode_control": [
        jobs.Abort(attempt="a"),
        jobs.Resend(attempt="a", position=4),
        jobs.ReleaseKv(kv=HANDLE),
        jobs.DumpKv(),
        jobs.Ping(),
        jobs.Judged(epoch=1, refusal="block size 64, but pool default has 32 (w1)"),
    ],
    "decode_pong": [jobs.Pong(epoch=3)],
    "decode_stream_batch": [
        stream.StreamBatch(
            "w",
            3,
            (
                stream.FirstToken("a", 7, 32, stream.Timing(1.0, 0.0, 8.5), HANDLE),
                stream.Tokens("b", 1, (8, 9), "", stream.Timing(), 0, 5),
                stream.Failed("c", "kv_expired", "gone"),
            ),
        )
    ],
    "decode_heartbeat": [
        fleet.Heartbeat(
            worker_id="w",
            role="decode",
            epoch=3,
            state="ready",
            model="m",
            layout="l",
            block_size=32,
            num_blocks=9,
            max_model_len=2048,
            max_num_seqs=8,
            max_chunk_tokens=512,
            load=fleet.Load(num_running=1, step=9),
            limits=fleet.Limits(max_jobs=8, max_queued_tokens=512),
            num_jobs=3,
            num_queued_tokens=64,
        )
    ],
    "decode_kv_events": [fleet.KvEvents(worker_id="w", epoch=3, seq=1, stored=b"12345678")],
    "decode_kv_dump": [fleet.KvDump(worker_id="w", epoch=3, seq=1, hashes=b"12345678")],
    "decode_status": [fleet.ServiceStatus(service="cache", instance="c1", state="ready")],
}
CASES = [
    pytest.param(decoder, message, id=f"{decoder}-{type(message).__name__}")
    for decoder, messages in EXAMPLES.items()
    for message in messages
]


def test_examples_cover_every_decoder_of_the_codec() -> None:
    decoders = {name for name, _ in inspect.getmembers(codec) if name.startswith("decode_")}
    assert decoders == set(EXAMPLES)


@pytest.mark.parametrize(("decoder", "message"), CASES)
def test_codec_returns_an_equal_message(decoder: str, message: object) -> None:
    assert getattr(codec, decoder)(codec.encode(message)) == message


@pytest.mark.parametrize(("decoder", "message"), [c for c in CASES if isinstance(c.values[1], Message)])
def test_map_message_ignores_a_field_that_a_newer_writer_added(decoder: str, message: object) -> None:
    wire = msgspec.msgpack.decode(codec.encode(message))
    wire["field_of_the_future"] = {"nested": [1, 2]}
    assert getattr(codec, decoder)(msgspec.msgpack.encode(wire)) == message


def test_hot_message_ignores_a_field_that_a_newer_writer_appended() -> None:
    (batch,) = EXAMPLES["decode_stream_batch"]
    wire = msgspec.msgpack.decode(codec.encode(batch))
    wire.append("new at the end")
    for event in wire[2]:
        event.append("new at the end")
    assert codec.decode_stream_batch(msgspec.msgpack.encode(wire)) == batch


def test_hot_message_fills_defaults_that_an_older_writer_did_not_send() -> None:
    event = codec.decode_stream_batch(msgspec.msgpack.encode(["w", 3, [["t", "a", 1, [5]]]])).events[0]
    assert event == stream.Tokens("a", 1, (5,))


def test_map_message_fills_defaults_that_an_older_writer_did_not_send() -> None:
    old = {"type": "settled", "placement_id": "p", "phase": "all"}
    assert codec.decode_settled(msgspec.msgpack.encode(old)) == placement.Settled(
        placement_id="p", phase="all"
    )


@pytest.mark.parametrize(("decoder", "message"), CASES)
def test_codec_refuses_a_message_of_another_conversation(decoder: str, message: object) -> None:
    with pytest.raises(msgspec.MsgspecError):
        getattr(codec, decoder)(msgspec.msgpack.encode({"type": "prompt_of_another", "x": 1}))


def test_every_message_is_frozen_and_only_required_fields_lack_defaults() -> None:
    for module in (cache, fleet, jobs, kv, placement, stream):
        for _, cls in inspect.getmembers(module, inspect.isclass):
            if issubclass(cls, Message | HotMessage):
                assert cls.__struct_config__.frozen, cls


def test_tags_are_snake_case_literals_and_never_the_class_name() -> None:
    for module in (cache, fleet, jobs, placement):
        for name, cls in inspect.getmembers(module, inspect.isclass):
            tag = getattr(getattr(cls, "__struct_config__", None), "tag", None)
            if tag is not None:
                assert tag != name
                assert tag == tag.lower()


def test_tokens_round_trip_and_refuse_what_is_not_u32() -> None:
    ids = [0, 1, 49_151, 2**32 - 1]
    assert tokens.unpack(tokens.pack(ids)) == ids
    assert tokens.pack([258]) == b"\x02\x01\x00\x00"
    with pytest.raises(OverflowError):
        tokens.pack([2**32])
    with pytest.raises(ValueError, match="bytes"):
        tokens.unpack(b"\x01\x02\x03")


def test_chain_names_prefixes_and_only_full_blocks() -> None:
    prompt = tokens.pack(range(70))
    hashes = blocks.split(blocks.chain(prompt, 32, "salt"))
    assert len(hashes) == 2
    assert blocks.split(blocks.chain(prompt[: 4 * 32], 32, "salt")) == hashes[:1]
    other_head = tokens.pack([9, *range(1, 70)])
    assert blocks.split(blocks.chain(other_head, 32, "salt"))[1] != hashes[1]
    assert blocks.extend(hashes[0], prompt[4 * 32 : 8 * 32]) == hashes[1]


def test_chain_of_another_salt_shares_nothing() -> None:
    prompt = tokens.pack(range(64))
    mine = set(blocks.split(blocks.chain(prompt, 32, "a")))
    assert mine.isdisjoint(blocks.split(blocks.chain(prompt, 32, "b")))


@pytest.mark.parametrize("bad", ["", "a.b", "a b", "*", ">", "a\r\nPUB x", "é", "x" * 65])
def test_subject_key_refuses_what_would_change_the_subject(bad: str) -> None:
    with pytest.raises(subjects.InvalidKey):
        subjects.job("local", "prefill", bad)


def test_subjects_are_versioned_and_carry_the_region() -> None:
    assert subjects.job("eu-west", "decode", "w_1") == "sub100.v1.eu-west.decode.job.w_1"
    assert subjects.slug("org/Model-1.5 B") == "org_Model-1_5_B"


@pytest.mark.parametrize("value", ["plain", "ø", "emoji 🙂", "a\r\nForged: yes", "100%", "x" * 5000])
def test_header_value_is_ascii_on_one_line_and_reversible(value: str) -> None:
    encoded = headers.encode(value)
    assert encoded.isascii()
    assert "\r" not in encoded
    assert "\n" not in encoded
    if len(value) < 100:
        assert headers.decode(encoded) == value
    assert len(encoded) <= 512


def test_contract_imports_only_msgspec_and_the_standard_library() -> None:
    allowed = {"msgspec", "re", "typing", "urllib", "sys", "array", "collections", "hashlib", "struct"}
    for path in Path(inspect.getfile(codec)).parent.glob("*.py"):
        for line in path.read_text().splitlines():
            if line.startswith(("import ", "from ")) and not line.startswith("from ."):
                assert line.split()[1].split(".")[0] in allowed, (path.name, line)

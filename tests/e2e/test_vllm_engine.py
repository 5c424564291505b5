"""What only the vLLM engine promises: its hand-over under faults, its sampling over a hand-over, its proof
that nothing was recomputed, and what it leaves behind."""

import asyncio
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import pytest_asyncio
from tests.contract.answer_shapes import assert_same_rows, rows
from tests.contract.engine_rig import Recorder, Rig
from tests.e2e.conftest import LEASE_S
from tests.kv_proxy import proxied
from tests.patience import PATIENCE_S
from tests.servers import shared_memory

from sub100_engine.api import KvChange
from sub100_engine.vllm.peers import Peers
from sub100_engine.vllm.runtime_dir import sweep
from sub100_engine.worker.engine_watch import EngineWatch
from sub100_engine.worker.shell import HEARTBEAT_S
from sub100_proto import blocks, tokens
from sub100_proto.kv import KvHandle
from sub100_shared.clock import monotonic_ms

if TYPE_CHECKING:
    from sub100_engine.vllm.engine import VllmEngine

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]


def over_tcp(kv: KvHandle) -> KvHandle:
    return msgspec.structs.replace(kv, shm="")


def prompt_tokens(engine: Any) -> tuple[int, int, int]:
    """Computed, cached, transferred, by vLLM's own count."""
    count = engine.prompt_tokens
    return count.computed, count.cached, count.transferred


# -- the right answer


@pytest.mark.parametrize("reach", [lambda kv: kv, over_tcp], ids=["shared-memory", "tcp"])
@pytest.mark.parametrize("num_tokens", [1, 31, 32, 33, 500, 2048])
async def test_handover_equals_one_engine(
    rig: Rig, num_tokens: int, reach: Callable[[KvHandle], KvHandle]
) -> None:
    prompt = rig.prompt(num_tokens)
    first, kv = await rig.handed_over(prompt, max_tokens=24, ignore_eos=True)
    rest = await rig.decoded(rig.work(prompt, output=[first], kv=reach(kv), max_tokens=24, ignore_eos=True))
    assert [first, *rest.ids] == await rig.expected(prompt, max_tokens=24, ignore_eos=True)
    assert rest.outputs[0].transferred_tokens == num_tokens


async def test_answer_depends_on_the_whole_prompt(rig: Rig) -> None:
    """Else the test above would hold on wrong KV too."""
    prompt = rig.prompt(500)
    other = [prompt[0] + 1, *prompt[1:]]
    sampling: dict[str, Any] = {"max_tokens": 24, "ignore_eos": True}
    assert await rig.expected(prompt, **sampling) != await rig.expected(other, **sampling)


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 1.0, "seed": 1234},
        {"temperature": 0.8, "seed": 7, "top_p": 0.9, "top_k": 50},
        {"presence_penalty": 1.5},
        {"frequency_penalty": 2.0},
        {"repetition_penalty": 1.5},
        {"temperature": 1.0, "seed": 5, "frequency_penalty": 1.0},
    ],
    ids=lambda sampling: "-".join(sampling),
)
@pytest.mark.parametrize("k", [1, 7])
async def test_handover_keeps_sampling_after_k_tokens(rig: Rig, sampling: dict[str, Any], k: int) -> None:
    for num_tokens in (40, 700):  # the longer one takes two chunks
        fields = {"max_tokens": 16, "ignore_eos": True, **sampling}
        prompt = rig.prompt(num_tokens)
        answer = await rig.expected(prompt, **fields)
        first, kv = await rig.handed_over(prompt, **fields)
        assert first == answer[0]
        rest = await rig.decoded(rig.work(prompt, output=answer[:k], kv=kv, **fields))
        assert rest.ids == answer[k:]
        alone = await rig.decoded(rig.work(prompt, output=answer[:k], salt="alone", **fields))
        assert alone.ids == answer[k:]


async def test_min_tokens_are_kept_over_the_handover(rig: Rig) -> None:
    prompt = rig.prompt(40)
    answer = await rig.expected(prompt, ignore_eos=True)
    stops: dict[str, Any] = {"stop_token_ids": [answer[1], answer[3]], "ignore_eos": True}
    for min_tokens, num_told in ((1, 1), (2, 3)):
        first, kv = await rig.handed_over(prompt, min_tokens=min_tokens, **stops)
        rest = await rig.decoded(rig.work(prompt, output=[first], kv=kv, min_tokens=min_tokens, **stops))
        if min_tokens == 1:
            assert [first, *rest.ids] == answer[:num_told]
        else:
            assert answer[1] not in rest.ids
        assert rest.last.finish_reason in ("stop", "length")


async def test_decode_with_more_cached_than_the_prompt_goes_on(rig: Rig) -> None:
    """An answer that this worker made is cached here beyond its prompt, when it is placed here again."""
    prompt = rig.prompt(64)
    answer = (await rig.decoded(rig.work(prompt, max_tokens=120, ignore_eos=True))).ids
    _, kv = await rig.handed_over(prompt)
    for handle in (kv, None):
        rest = await rig.decoded(
            rig.work(prompt, output=answer[:100], kv=handle, max_tokens=120, ignore_eos=True)
        )
        assert rest.ids == answer[100:]
        assert rest.outputs[0].cached_tokens == 64
    await rig.idle(rig.prefill)


async def test_logprobs_are_whole_when_outputs_were_not_taken_in_time(rig: Rig) -> None:
    """vLLM then merges outputs, and lists a token that is among the likeliest once only."""
    fields: dict[str, Any] = {
        "logprobs": 3,
        "max_tokens": 200,
        "temperature": 1.0,
        "seed": 4,
        "ignore_eos": True,
    }
    prompt = rig.prompt(40)
    expected = await rig.decoded(rig.work(prompt, **fields), rig.reference)
    late = Recorder(rig.work(prompt, **fields))
    rig.decode.decode(late.work, late)
    async with asyncio.timeout(30):
        await late.until(lambda r: bool(r.outputs))
        time.sleep(0.5)  # noqa: ASYNC251  # the fault itself: nothing is taken meanwhile
        await late.until(lambda r: r.is_over)
    assert max(len(output.token_ids) for output in late.outputs) > 1
    assert late.ids == expected.ids
    assert_same_rows(rows(late), rows(expected))


# -- what is moved, and what is not


async def test_vllm_counts_no_computed_prompt_token_on_decode(rig: Rig) -> None:
    prompt = rig.prompt(333)
    first, kv = await rig.handed_over(prompt)
    computed, cached, transferred = prompt_tokens(rig.decode)
    await rig.decoded(rig.work(prompt, output=[first], kv=kv))
    assert prompt_tokens(rig.decode) == (computed, cached, transferred + 333)


async def test_only_blocks_that_decode_has_not_are_pulled(rig: Rig) -> None:
    prompt = rig.prompt(200)
    await rig.decoded(rig.work(prompt[:130]))
    first, kv = await rig.handed_over(prompt)
    rest = await rig.decoded(rig.work(prompt, output=[first], kv=kv))
    assert (rest.outputs[0].cached_tokens, rest.outputs[0].transferred_tokens) == (128, 72)
    assert [first, *rest.ids] == await rig.expected(prompt)


async def test_prompt_that_decode_has_whole_lets_the_producer_go(rig: Rig) -> None:
    prompt = rig.prompt(128)
    await rig.decoded(rig.work(prompt))
    first, kv = await rig.handed_over(prompt)
    rest = await rig.decoded(rig.work(prompt, output=[first], kv=kv))
    assert (rest.outputs[0].cached_tokens, rest.outputs[0].transferred_tokens) == (128, 0)
    await rig.idle(rig.prefill)


async def test_release_of_kv_that_was_pulled_costs_nothing(rig: Rig) -> None:
    """Workers release all that they remember of an ingress that left: thousands of handles."""

    def is_releasing() -> bool:
        return any(task.get_name() == "kv-release" for task in asyncio.all_tasks())

    prompt = rig.prompt(100)
    first, kv = await rig.handed_over(prompt)
    rest = await rig.decoded(rig.work(prompt, output=[first], kv=kv))
    assert rest.last.error == ""
    await rig.idle(rig.prefill)
    await rig.until(lambda: rig.prefill.load().num_pinned_blocks == 0)
    rig.prefill.release(kv)
    assert not is_releasing()
    _, kv = await rig.handed_over(prompt)
    rig.prefill.release(kv)
    assert is_releasing()
    await rig.idle(rig.prefill)


async def test_kv_events_of_evicted_blocks_are_told(rig: Rig) -> None:
    size = rig.prefill_info.block_size
    prompt = rig.prompt(2 * size)
    ours = set(blocks.split(blocks.chain(tokens.pack(prompt), size, "")))
    await rig.prefilled(rig.work(prompt, max_tokens=1))
    held: set[bytes] = set()
    seen = 0

    def replay() -> set[bytes]:
        nonlocal seen
        for change in rig.prefill_changes[seen:]:
            if change.cleared:
                held.clear()
            held.difference_update(change.removed)
            held.update(change.stored)
        seen = len(rig.prefill_changes)
        return held & ours

    await rig.until(lambda: replay() == ours)
    while replay():
        await rig.prefilled(rig.work(rig.prompt(2000), max_tokens=1))
    assert len(held) <= rig.prefill_info.num_blocks


# -- faults


@pytest.mark.parametrize("fault", [{"flip_at": 20_000}, {"cut_at": 20_000}], ids=["flipped", "cut"])
async def test_damaged_payload_fails_that_attempt_alone(rig: Rig, fault: dict[str, int]) -> None:
    prompt = rig.prompt(100)
    first, kv = await rig.handed_over(prompt)
    computed, _, transferred = prompt_tokens(rig.decode)
    with proxied(kv, **fault) as handle:
        told = await rig.decoded(rig.work(prompt, output=[first], kv=handle))
    assert (told.last.error, told.ids) == ("kv_load_failed", [])
    await rig.idle(rig.decode)
    assert prompt_tokens(rig.decode)[::2] == (computed, transferred)
    again = await rig.decoded(rig.work(prompt, output=[first], kv=kv))
    assert [first, *again.ids] == await rig.expected(prompt)


async def test_stalled_payload_holds_nobody_up_and_its_blocks_come_back(rig: Rig) -> None:
    prompt = rig.prompt(100)
    first, kv = await rig.handed_over(prompt)
    with proxied(kv, stall_at=20_000) as handle:
        stalled = Recorder(rig.work(prompt, output=[first], kv=handle))
        rig.decode.decode(stalled.work, stalled)
        await rig.until(lambda: rig.decode.load().kv_usage > 0)
        other = await rig.decoded(rig.work(rig.prompt(30), ignore_eos=True))
        assert other.last.finish_reason == "length"
        assert not stalled.outputs
        await rig.ended(stalled)
    assert stalled.last.error == "kv_load_failed"
    await rig.idle(rig.decode)
    await rig.idle(rig.prefill)


async def test_lease_that_ends_frees_the_blocks_and_is_expired(rig: Rig) -> None:
    """P01: and counts them."""
    prompt = rig.prompt(100)
    before = rig.prefill.load()
    first, kv = await rig.handed_over(prompt)
    assert rig.prefill.load().kv_usage > 0
    await rig.idle(rig.prefill)
    await rig.until(lambda: rig.prefill.load().num_expired_blocks == before.num_expired_blocks + 4)
    told = await rig.decoded(rig.work(prompt, output=[first], kv=kv))
    assert (told.last.error, told.ids) == ("kv_expired", [])


async def test_puller_with_another_secret_gets_nothing(rig: Rig) -> None:
    prompt = rig.prompt(40)
    first, kv = await rig.handed_over(prompt)
    stranger = Peers(b"another key of exactly 32 bytes.")
    assert await asyncio.to_thread(stranger.release, kv) is False
    rest = await rig.decoded(rig.work(prompt, output=[first], kv=kv))
    assert rest.last.error == ""


async def test_abort_before_the_pull_frees_both_sides(rig: Rig) -> None:
    prompt = rig.prompt(100)
    first, kv = await rig.handed_over(prompt)
    for _ in range(3):  # at once, and in the middle of loading
        recorder = Recorder(rig.work(prompt, output=[first], kv=kv, max_tokens=500, ignore_eos=True))
        rig.decode.decode(recorder.work, recorder)
        await asyncio.sleep(0)
        rig.decode.abort(recorder.work.attempt)
    await rig.idle(rig.decode)
    rig.prefill.release(kv)
    await rig.idle(rig.prefill)


async def test_abort_of_a_running_prefill_leaves_no_lease(rig: Rig) -> None:
    await rig.idle(rig.prefill)
    for num_steps in (0, 1, 2):
        recorder = Recorder(rig.work(rig.prompt(600)))
        rig.prefill.prefill(recorder.work, recorder)
        target = rig.prefill.load().step + num_steps

        def is_there(recorder: Recorder = recorder, target: int = target) -> bool:
            return recorder.is_over or rig.prefill.load().step >= target

        await rig.until(is_there)
        rig.prefill.abort(recorder.work.attempt)
        if recorder.is_over:
            kv = recorder.last.kv
            assert kv is not None
            rig.prefill.release(kv)
    async with asyncio.timeout(LEASE_S - 2):
        await rig.idle(rig.prefill)


# -- the end of it


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory whose name leaves room for Unix sockets in it."""
    with tempfile.TemporaryDirectory(prefix="s100-") as path:
        yield Path(path)


@pytest_asyncio.fixture(loop_scope="session")
async def lone(vllm_config: Any, short_dir: Path) -> "AsyncIterator[VllmEngine]":
    from sub100_engine.vllm.engine import VllmEngine

    config = msgspec.structs.replace(vllm_config, runtime_dir=str(short_dir), lease_s=60.0, orphan_s=0.5)
    engine = VllmEngine(config, b"k" * 32)
    yield engine
    await engine.stop()


def is_alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


async def test_killed_core_fails_attempts_and_tells_the_listener_once(
    lone: "VllmEngine", short_dir: Path
) -> None:
    failures: list[str] = []
    lone.set_failure_listener(failures.append)
    changes: list[KvChange] = []
    await lone.start(changes.append)
    pid = lone.core_pid
    work = Rig.work(None, [5, 6, 7], max_tokens=3000, ignore_eos=True)  # type: ignore[arg-type]
    running = Recorder(work)
    lone.decode(work, running)
    async with asyncio.timeout(PATIENCE_S):
        await running.until(lambda r: bool(r.outputs))
        os.kill(pid, signal.SIGKILL)
        await running.until(lambda r: r.is_over)
    assert running.last.error == "engine_error"
    assert running.num_after_last == 0
    after = Recorder(msgspec.structs.replace(work, attempt="after"))
    lone.decode(after.work, after)
    async with asyncio.timeout(PATIENCE_S):
        await after.until(lambda r: r.is_over)
    assert after.last.error == "engine_error"
    assert len(failures) == 1
    await lone.stop()
    assert os.listdir(short_dir) == []


@pytest.mark.parametrize("is_idle", [False, True], ids=["decoding", "idle"])
async def test_core_that_stands_still_is_noticed_and_so_is_its_coming_back(
    lone: "VllmEngine", is_idle: bool
) -> None:
    """An idle core that hangs has said last that it runs nothing."""
    faults: list[str] = []
    watch = EngineWatch(lone, monotonic_ms, HEARTBEAT_S, faults.append)

    async def look(is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                await asyncio.sleep(0.25)
                watch.look(lone.load(), prompt_step_s=0.0)

    await lone.start(lambda _: None)
    job = Recorder(Rig.work(None, [5, 6, 7], max_tokens=3000, ignore_eos=True))  # type: ignore[arg-type]
    if not is_idle:
        lone.decode(job.work, job)
        async with asyncio.timeout(PATIENCE_S):
            await job.until(lambda r: bool(r.outputs))
    os.kill(lone.core_pid, signal.SIGSTOP)
    try:
        if is_idle:
            lone.decode(job.work, job)
        await look(lambda: bool(watch.fault))
        lone.abort(job.work.attempt)
    finally:
        os.kill(lone.core_pid, signal.SIGCONT)
    await look(lambda: not watch.fault)
    assert faults == ["the engine makes no step, with 1 requests and 0 pinned blocks in it", ""]
    await lone.stop()


async def test_stop_does_not_wait_for_kv_that_nobody_pulls(lone: "VllmEngine", short_dir: Path) -> None:
    await lone.start(lambda _: None)
    work = Rig.work(None, list(range(10, 300)), ignore_eos=True)  # type: ignore[arg-type]
    handed_over = Recorder(work)
    lone.prefill(work, handed_over)
    async with asyncio.timeout(PATIENCE_S):
        await handed_over.until(lambda r: r.is_over)
    assert handed_over.last.kv is not None
    async with asyncio.timeout(PATIENCE_S):  # the lease runs for a minute
        assert await lone.drain(60) is False
        await lone.stop()
    assert os.listdir(short_dir) == []


async def test_start_that_is_cancelled_leaves_nothing(lone: "VllmEngine", short_dir: Path) -> None:
    before = set(multiprocessing.active_children())
    starting = asyncio.create_task(lone.start(lambda _: None))
    async with asyncio.timeout(60):
        while not set(multiprocessing.active_children()) - before:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert set(multiprocessing.active_children()) == before
    assert os.listdir(short_dir) == []


_VICTIM = """
import asyncio, sys
import msgspec
from sub100_engine.vllm.config import VllmConfig
from sub100_engine.vllm.engine import VllmEngine

async def run():
    engine = VllmEngine(msgspec.json.decode(sys.argv[1], type=VllmConfig), b"k" * 32)
    await engine.start(lambda change: None)
    print(engine.core_pid, flush=True)
    await asyncio.Event().wait()

if __name__ == "__main__":
    asyncio.run(run())
"""


async def test_killed_adapter_takes_its_core_along_and_is_swept(
    vllm_config: Any, short_dir: Path, tmp_path: Path
) -> None:
    shared_before = shared_memory()
    config = msgspec.structs.replace(vllm_config, runtime_dir=str(short_dir))
    script = tmp_path / "victim.py"
    script.write_text(_VICTIM)
    victim = await asyncio.create_subprocess_exec(
        sys.executable,
        str(script),
        msgspec.json.encode(config).decode(),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
    )
    assert victim.stdout is not None
    async with asyncio.timeout(90):
        core = int(await victim.stdout.readline())
    assert is_alive(core)
    victim.kill()
    await victim.wait()
    async with asyncio.timeout(PATIENCE_S):
        while is_alive(core):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert len(os.listdir(short_dir)) == 1
    assert sweep(short_dir) == 1
    assert os.listdir(short_dir) == []
    async with asyncio.timeout(PATIENCE_S):  # Python's own tracker removes the semaphores of what was killed
        while not shared_memory() <= shared_before:  # noqa: ASYNC110
            await asyncio.sleep(0.05)

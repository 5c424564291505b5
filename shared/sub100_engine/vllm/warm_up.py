"""The first requests of an engine's life are ours: what is slow only once is paid before it is ready."""

import asyncio
import secrets
from collections.abc import Callable
from typing import Final

from sub100_engine.api import Engine, EngineInfo, EngineStartError, Output, Sink, Work
from sub100_proto.kv import KvHandle
from sub100_proto.sampling import Sampling, Structured

_TIMEOUT_S: Final = 120.0
_NUM_TOKENS: Final = 4


async def warm_up(engine: Engine, info: EngineInfo, vocab_size: int, heard_events: asyncio.Event) -> KvHandle:
    """Prefill, hand over to ourselves and decode at typical lengths; returns the last handle.

    Salts are fresh, so that the blocks serve no request. Full blocks are found in the local prefix cache,
    so the pull moves the last, partial one. Raises EngineStartError.
    """
    room = info.max_model_len - _NUM_TOKENS - 1
    lengths = sorted({min(room, n) for n in (16, info.block_size + 1, info.max_chunk_tokens + 1)})
    handle: KvHandle | None = None
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            for num_tokens in [*lengths, *lengths]:
                handle = await _hand_over(engine, num_tokens, vocab_size)
            await _structured(engine)
            await heard_events.wait()
    except TimeoutError as error:
        raise EngineStartError(f"the engine did not answer within {_TIMEOUT_S:.0f} s of warm-up") from error
    assert handle is not None
    return handle


async def _hand_over(engine: Engine, num_tokens: int, vocab_size: int) -> KvHandle:
    prompt = [1 + (i * 7919) % (vocab_size - 1) for i in range(num_tokens)]
    salt = f"warm-up-{secrets.token_hex(8)}"
    sampling = Sampling(max_tokens=_NUM_TOKENS, temperature=0.0, ignore_eos=True)
    first = await _last_output(
        engine.prefill, Work(attempt=f"warm-{salt}", prompt=prompt, sampling=sampling, salt=salt)
    )
    if first.kv is None:
        raise EngineStartError(f"the engine's warm-up failed: {first.error} {first.reason}")
    work = Work(
        attempt=f"warm-{salt}-decode",
        prompt=prompt,
        sampling=sampling,
        output=first.token_ids,
        kv=first.kv,
        salt=salt,
    )
    last = await _last_output(engine.decode, work)
    if last.error:
        raise EngineStartError(f"the engine's warm-up failed: {last.error} {last.reason}")
    return first.kv


async def _structured(engine: Engine) -> None:
    """The first grammar of an engine's life makes tables of the vocabulary. A model for which none can be
    made says so to each request that needs one."""
    sampling = Sampling(max_tokens=_NUM_TOKENS, structured=Structured(kind="json_object"))
    await _last_output(engine.decode, Work(attempt="warm-json", prompt=[1], sampling=sampling))


async def _last_output(submit: Callable[[Work, Sink], None], work: Work) -> Output:
    ended: asyncio.Future[Output] = asyncio.get_running_loop().create_future()

    def sink(output: Output) -> None:
        if (output.is_last or output.kv is not None) and not ended.done():
            ended.set_result(output)

    submit(work, sink)
    return await ended

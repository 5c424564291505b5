"""The scheduler half of the hand-over: which blocks are whose, and when. Decisions only, no I/O."""

from dataclasses import dataclass
from typing import Any

import msgspec
from vllm.v1.metrics.stats import PrefillStats
from vllm.v1.request import Request, RequestStatus

from sub100_proto.kv import KvHandle

from .orders import Orders, PinOrder, Place, PullOrder, RequestParams, parse_params, prompt_fingerprint


class _AnswerPrefillStats(PrefillStats):  # type: ignore[misc]
    """Prefill statistics of a request that starts with output tokens.

    vLLM fills the statistics in itself, and asserts that no more than the prompt was cached. A request
    that starts with output may find blocks of that output cached too: being falsy makes vLLM leave them
    to us, and ``Scheduling.match`` counts the prompt's part only.
    """

    def __bool__(self) -> bool:
        return False


@dataclass
class _Pending:
    """A request of ours that the engine knows. ``is_due``: its pull has not been ordered yet."""

    params: RequestParams
    request: Any
    prompt: bytes
    is_due: bool
    is_output_told: bool = False
    is_grammar_fed: bool = False


class Scheduling:
    """One per engine; vLLM calls ``add`` -> ``match`` -> ``allocate`` -> ``orders`` -> ``finish``."""

    def __init__(self, block_size: int, lease_s: float) -> None:
        self._block_size = block_size
        self._lease_s = lease_s
        self._place: Place | None = None
        self._pending: dict[str, _Pending] = {}
        self._orders = Orders()

    def set_place(self, place: Place) -> None:
        self._place = place

    def add(self, request: Request) -> None:
        """Take our parameters out of the request (nothing of them shall be printed with it), and give it
        the output that it starts with, before anything is scheduled."""
        value = request.kv_transfer_params
        if not value:
            return
        params = parse_params(value)
        value.clear()
        request.kv_transfer_params = None
        prompt = prompt_fingerprint(request.prompt_token_ids or [], request.cache_salt or "")
        self._pending[request.request_id] = _Pending(params, request, prompt, params.pull is not None)
        if params.output:
            request.append_output_token_ids(list(params.output))
            request.prefill_stats = _AnswerPrefillStats()

    def match(self, request: Request, num_local: int) -> tuple[int, bool]:
        """How many tokens beyond the local prefix come from elsewhere, and whether asynchronously."""
        pending = self._pending.get(request.request_id)
        if pending is None:
            return 0, False
        self._feed_grammar(pending)
        num_prompt = request.num_prompt_tokens
        num_external = max(0, num_prompt - num_local) if pending.is_due else 0
        stats = request.prefill_stats
        if isinstance(stats, _AnswerPrefillStats) and not request.num_preemptions:
            stats.set(num_prompt, min(num_local, num_prompt), num_external)
        return num_external, num_external > 0

    def allocate(self, request: Request, block_ids: list[int], num_external: int) -> None:
        """Order the pull. vLLM calls this a second time when the load is done: nothing is due then."""
        pending = self._pending.get(request.request_id)
        if pending is None or not pending.is_due or pending.params.pull is None:
            return
        pending.is_due = False
        if num_external == 0:  # all of the prompt was here already
            self._orders.unneeded.append(pending.params.pull)
            return
        num_prompt = request.num_prompt_tokens
        first = (num_prompt - num_external) // self._block_size
        self._orders.pulls.append(
            PullOrder(
                request.request_id,
                pending.params.attempt,
                pending.params.pull,
                pending.prompt,
                first,
                tuple(block_ids[first : self._num_blocks(num_prompt)]),
                num_external,
            )
        )

    def orders(self, num_scheduled: dict[str, int], new: list[str], block_ids: Any) -> Orders:
        """The orders of this step. ``block_ids(request_id)`` gives a request's blocks in order."""
        orders, self._orders = self._orders, Orders()
        for request_id, count in num_scheduled.items():
            pending = self._pending.get(request_id)
            if pending is None or not pending.params.export:
                continue
            request = pending.request
            if request.num_computed_tokens + count >= request.num_prompt_tokens:
                ids = tuple(block_ids(request_id)[: self._num_blocks(request.num_prompt_tokens)])
                orders.pins.append(PinOrder(pending.params.export, request_id, pending.prompt, ids))
        for request_id in new:
            pending = self._pending.get(request_id)
            if pending is not None and pending.params.output and not pending.is_output_told:
                pending.is_output_told = True
                orders.outputs[request_id] = pending.params.output
        return orders

    def finish(self, request: Request) -> tuple[bool, dict[str, Any] | None]:
        """Whether the engine must leave the blocks alone, and the handle of what is handed over.

        What this request was to pull is not released, however it ended: the next worker may come for it.
        Only an answer that goes on is handed over: a prefill stopped by its one-token limit.
        """
        pending = self._pending.pop(request.request_id, None)
        if pending is None:
            return False, None
        is_ordered = pending.params.pull is not None and not pending.is_due
        if is_ordered and request.status == RequestStatus.FINISHED_ABORTED:
            self._orders.cancels.append(request.request_id)
        if not pending.params.export:
            return False, None
        if request.status != RequestStatus.FINISHED_LENGTH_CAPPED or self._place is None:
            self._orders.discards.append((pending.params.export, request.request_id))
            return False, None
        return True, msgspec.to_builtins(self._handle(request, pending.params.export, self._place))

    def _handle(self, request: Request, key: str, place: Place) -> KvHandle:
        return KvHandle(
            connector=place.connector,
            key=key,
            num_tokens=request.num_prompt_tokens,
            layout=place.layout,
            lease_s=self._lease_s,
            endpoint=place.endpoint,
            host_id=place.host_id,
            shm=place.shm,
            num_bytes=place.block_bytes * self._num_blocks(request.num_prompt_tokens),
        )

    def _num_blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self._block_size)

    def _feed_grammar(self, pending: _Pending) -> None:
        """A grammar must have seen the output that the answer starts with; it is compiled by now."""
        structured = pending.request.structured_output_request
        if structured is None or pending.is_grammar_fed or not pending.params.output:
            return
        pending.is_grammar_fed = True
        structured.grammar.accept_tokens(pending.request.request_id, pending.params.output)

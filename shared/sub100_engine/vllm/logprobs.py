"""vLLM's flat log probabilities -> packed rows (``sub100_proto.logprobs``). Pure."""

from typing import TYPE_CHECKING

from sub100_proto.logprobs import Row, pack

if TYPE_CHECKING:
    from vllm.logprobs import FlatLogprobs


def packed(flat: "FlatLogprobs", num_top: int, num_rows: int) -> bytes:
    """The first ``num_rows`` positions. vLLM puts a token's own entry first, then the likeliest ones."""
    return pack([_row(flat, i, num_top) for i in range(num_rows)])


def packed_prompt(flat: "FlatLogprobs", num_top: int) -> bytes:
    """All positions but the first, which has nothing before it."""
    return pack([_row(flat, i, num_top) for i in range(1, len(flat))])


def _row(flat: "FlatLogprobs", position: int, num_top: int) -> Row:
    """A token that is among the likeliest is listed twice, but once in outputs that vLLM has merged because
    nobody took them in time."""
    entries = range(flat.start_indices[position], flat.end_indices[position])
    own = entries[0]
    top = entries[1:] if len(entries) > num_top else sorted(entries, key=lambda i: flat.ranks[i] or 0)
    return Row(
        flat.logprobs[own],
        flat.ranks[own] or 0,
        tuple((flat.token_ids[i], flat.logprobs[i]) for i in top),
    )

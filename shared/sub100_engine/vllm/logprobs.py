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
    start = flat.start_indices[position]
    top = range(start + 1, start + 1 + num_top)
    return Row(
        flat.logprobs[start],
        flat.ranks[start] or 0,
        tuple((flat.token_ids[i], flat.logprobs[i]) for i in top),
    )

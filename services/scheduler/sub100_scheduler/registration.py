"""Who may join a pool: pure, and the same at every replica.

Workers of a pool hand KV to each other, so they must agree in all of ``_TRAITS``. **Those in place are
right**: a ready worker that differs from them is refused, however many like it there are, until the last of
them has left. Where nobody is in place, the oldest candidate (the smallest epoch, then id) goes first. A
refused worker does not say ``ready`` any more, so that a restarted scheduler hears only those in place. A
pool therefore changes its model or block size under another name, or empty.
"""

from collections.abc import Iterable
from typing import Final

from sub100_proto.fleet import Heartbeat

_TRAITS: Final = (
    ("model", "model"),
    ("revision", "model revision"),
    ("block_size", "block size"),
    ("dtype", "dtype"),
    ("tensor_parallel", "tensor parallel size"),
    ("connector", "connector"),
    ("hashes", "block hash"),
    ("layout", "KV layout"),
)
"""In the order in which they explain one another: the layout differs with most of the others."""


def is_candidate(beat: Heartbeat) -> bool:
    """Whether there is something to judge: a worker that is loading may not know its layout yet."""
    return beat.state == "ready" or bool(beat.refusal)


def refusal(beat: Heartbeat, in_place: Iterable[Heartbeat], waiting: Iterable[Heartbeat]) -> str:
    """Why the worker may not join its pool; empty if it may.

    ``in_place`` are the fleet's members, ``waiting`` those that were refused or have only just come; both of
    all pools, and either may hold the worker itself.
    """
    mates = [mate for mate in in_place if _counts(mate, beat) and mate.state == "ready"]
    if not mates:
        mates = [beat, *(mate for mate in waiting if _counts(mate, beat) and is_candidate(mate))]
    measure = min(mates, key=_age)
    return "" if measure.worker_id == beat.worker_id else difference(beat, measure)


def difference(beat: Heartbeat, measure: Heartbeat) -> str:
    """In words; values that either side does not know are no difference."""
    for name, words in _TRAITS:
        ours, theirs = getattr(beat, name), getattr(measure, name)
        if ours != theirs and ours and theirs:
            return f"{words} {ours}, but pool {beat.pool} has {theirs} ({measure.worker_id})"
    return ""


def _counts(mate: Heartbeat, beat: Heartbeat) -> bool:
    """Of the same pool, and no older life of the worker itself."""
    return mate.pool == beat.pool and (mate.worker_id != beat.worker_id or mate.epoch == beat.epoch)


def _age(beat: Heartbeat) -> tuple[int, str]:
    return beat.epoch, beat.worker_id

"""What crosses the bus of the budget ledger: durations that remain, never a wall-clock deadline."""

from ._struct import Message


class Budget(Message, frozen=True):
    """The TTFT budget as its receiver sees it, in milliseconds.

    ``remaining_ms`` is counted at the sender's moment of sending, less the expected one-way transit;
    it may be negative (late answers are served unless refusal was asked for). ``allotted_ms`` is
    the share of the hop that the message opens.
    """

    total_ms: float
    remaining_ms: float
    allotted_ms: float

"""One attempt inside the simulated engine."""

from sub100_engine.api import Sink, Work
from sub100_proto import blocks, tokens

from .answers import Answer
from .block_pool import Block
from .sampling import Choice


class Sequence:
    """``tokens`` are prompt and output; the first ``num_computed`` of them have their KV in ``blocks``."""

    __slots__ = (
        "answer",
        "blocks",
        "cached_tokens",
        "choice",
        "hashes",
        "is_done",
        "is_prefill",
        "is_pulling",
        "is_told",
        "num_accepted",
        "num_computed",
        "num_drafted",
        "num_drafts",
        "pulled_at",
        "scheduled_at",
        "sink",
        "submitted_at",
        "tokens",
        "transfer_ms",
        "transferred_tokens",
        "wants_kv",
        "work",
    )

    def __init__(
        self,
        work: Work,
        sink: Sink,
        answer: Answer,
        choice: Choice | None = None,
        *,
        is_prefill: bool,
        now: float,
    ) -> None:
        self.work = work
        self.sink = sink
        self.answer = answer
        self.choice = choice
        self.is_prefill = is_prefill
        self.tokens = [*work.prompt, *work.output]
        self.hashes: list[bytes] = []
        self.blocks: list[Block] = []
        self.num_computed = 0
        self.num_drafts = 0
        """Draft tokens that the step in progress verifies; the other two count those before it."""
        self.num_drafted = 0
        self.num_accepted = 0
        self.cached_tokens = 0
        self.transferred_tokens = 0
        self.wants_kv = work.kv is not None
        self.is_pulling = False
        self.is_done = False
        self.is_told = False
        """Whether the first output, which carries the durations, has left."""
        self.submitted_at = now
        self.scheduled_at: float | None = None
        self.pulled_at: float | None = None
        self.transfer_ms = 0.0

    @property
    def num_prompt(self) -> int:
        return len(self.work.prompt)

    @property
    def num_output(self) -> int:
        return len(self.tokens) - len(self.work.prompt)

    def next_token(self) -> int:
        """What comes after the tokens so far."""
        wanted = self.answer.token(self.num_output)
        if self.choice is None:
            return wanted
        return self.choice.pick(wanted, self.tokens[self.num_prompt :])

    @property
    def num_pending(self) -> int:
        """Tokens whose KV is not there yet; 1 means an ordinary decode step."""
        return len(self.tokens) - self.num_computed

    @property
    def is_decoding(self) -> bool:
        return self.num_pending == 1 and self.num_output > 0

    def num_blocks_needed(self, block_size: int) -> int:
        return -(-len(self.tokens) // block_size)

    def extend_hashes(self, num_blocks: int, block_size: int) -> None:
        """Know the chain hashes of the first ``num_blocks`` blocks, which must be full."""
        parent = self.hashes[-1] if self.hashes else blocks.root(self.work.salt)
        for index in range(len(self.hashes), num_blocks):
            parent = blocks.extend(
                parent, tokens.pack(self.tokens[index * block_size : (index + 1) * block_size])
            )
            self.hashes.append(parent)

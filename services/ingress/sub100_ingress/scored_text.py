"""Log probabilities of the tokens whose text is delivered, no earlier and no later than that text.

A token whose text is held back (half a character, the beginning of a stop string) waits with it. At a stop
string the tokens that begin before it are delivered, the others never: what a client adds up covers the
text that it has.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from sub100_proto import tokens
from sub100_proto.logprobs import Row, unpack

from . import logprobs
from .detokenizer import Detokenizer
from .exchange import Exchange, Prompt
from .openai_request import GenerationRequest
from .text import ScoredToken, TextAssembler
from .tokenizer import ModelTokenizer

_LONG_BYTES: Final = 32_768


class ScoredText(TextAssembler):
    """A TextAssembler that keeps the scores. ``num_top`` alternatives are shown a token."""

    def __init__(
        self,
        tokenizer: ModelTokenizer,
        stops: tuple[str, ...],
        num_top: int,
        prefix: str = "",
        min_tokens: int = 0,
    ) -> None:
        super().__init__(tokenizer, stops, prefix, min_tokens)
        self._tokenizer = tokenizer
        self.num_top = num_top
        self._start = len(prefix)
        self._waiting: deque[ScoredToken] = deque()
        self._due: list[ScoredToken] = []
        self._num_delivered = 0

    def score_prompt(self, scored: Sequence[ScoredToken]) -> None:
        """The echoed prompt's tokens, which leave with it."""
        self._due.extend(scored)

    def push(self, ids: Sequence[int], rows: bytes = b"") -> str:
        known = unpack(rows, self.num_top) if rows else []
        pieces: list[str] = []
        for i, token_id in enumerate(ids):
            if i < len(known):
                offset = self._start + self.num_chars
                self._waiting.append(scored(self._tokenizer, token_id, known[i], offset, self.num_top))
            pieces.append(self._push((token_id,)))
            if self.is_stopped:
                break
        piece = "".join(pieces)
        self._deliver(len(piece))
        return self._with_prefix(piece)

    def finish(self) -> str:
        piece = self._finish()
        self._deliver(len(piece))
        if not self.is_stopped:
            self._due.extend(self._waiting)
        self._waiting.clear()
        return self._with_prefix(piece)

    def take_scored(self) -> Sequence[ScoredToken]:
        due, self._due = self._due, []
        return due

    def _deliver(self, num_chars: int) -> None:
        self._num_delivered += num_chars
        end = self._start + self._num_delivered
        while self._waiting and self._waiting[0].offset < end:
            self._due.append(self._waiting.popleft())


def scored(tokenizer: ModelTokenizer, token_id: int, row: Row, offset: int, num_top: int) -> ScoredToken:
    """At most ``num_top`` of the row's alternatives."""
    top = tuple((tokenizer.bytes_of(other), logprob) for other, logprob in row.top[:num_top])
    return ScoredToken(tokenizer.bytes_of(token_id), row.logprob, offset, top)


def assembler(tokenizer: ModelTokenizer, request: GenerationRequest) -> TextAssembler:
    """What makes text of the tokens of one answer to ``request``."""
    prefix = ""
    if request.echo:
        prefix = request.prompt if isinstance(request.prompt, str) else tokenizer.decode(request.prompt)
    num_top, min_tokens = request.sampling.logprobs, request.sampling.min_tokens
    if num_top is None:
        return TextAssembler(tokenizer, request.stops, prefix, min_tokens)
    return ScoredText(tokenizer, request.stops, num_top, prefix, min_tokens)


async def score_prompt(
    tokenizer: ModelTokenizer, ex: Exchange, prompt: Prompt, packed: bytes, text: TextAssembler
) -> None:
    """Keep a prompt's log probabilities for the answer; long ones are read off the event loop."""
    num_top = prompt.sampling.prompt_logprobs or 0

    def read() -> None:
        ids = tokens.unpack(prompt.packed)
        rows = unpack(packed, num_top)
        if ex.request.prompt_top is not None:
            ex.prompt_logprobs = logprobs.of_prompt(tokenizer, ids, rows, ex.request.prompt_top)
        if ex.request.echo and isinstance(text, ScoredText):
            text.score_prompt(_scored_prompt(tokenizer, ids, rows, text.num_top))

    if len(packed) > _LONG_BYTES:
        await asyncio.to_thread(read)
    else:
        read()


def _scored_prompt(
    tokenizer: ModelTokenizer, ids: Sequence[int], rows: Sequence[Row], num_top: int
) -> list[ScoredToken]:
    """The tokens of a prompt, of which the first has nothing before it."""
    detokenizer = Detokenizer(tokenizer)
    offset = 0
    found: list[ScoredToken] = []
    for i, token_id in enumerate(ids):
        if i == 0:
            found.append(ScoredToken(tokenizer.bytes_of(token_id), None, 0))
        else:
            found.append(scored(tokenizer, token_id, rows[i - 1], offset, num_top))
        offset += len(detokenizer.push((token_id,)))
    return found

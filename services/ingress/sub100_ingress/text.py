"""Tokens to text, across prefill, decode and re-placements: one per answer."""

from collections.abc import Sequence

import msgspec

from .detokenizer import Detokenizer
from .stops import StopMatcher
from .tokenizer import ModelTokenizer


class ScoredToken(msgspec.Struct, frozen=True, gc=False):
    """A token's log probability as clients see it: ``token`` and the ids in ``top`` are bytes by now.

    ``offset`` is where its text begins in the answer, in characters. The first token of an echoed prompt
    has no probability.
    """

    token: bytes
    logprob: float | None
    offset: int
    top: tuple[tuple[bytes, float], ...] = ()


class TextAssembler:
    """Detokenises and matches stop strings; characters and stops may span any two tokens.

    ``prefix`` (an echoed prompt) leaves before the answer's first text. No stop string ends in the text of
    the first ``min_tokens`` tokens (as in vLLM, it may begin there).
    """

    def __init__(
        self, tokenizer: ModelTokenizer, stops: tuple[str, ...], prefix: str = "", min_tokens: int = 0
    ) -> None:
        self._detokenizer = Detokenizer(tokenizer)
        self._matcher = StopMatcher(stops) if stops else None
        self._prefix = prefix
        self._min_tokens = min_tokens
        self.num_chars = 0
        """Of the answer's text so far, held-back text included."""
        self.num_tokens = 0
        """Of the answer; those after the one that completed a stop string do not belong to it, however many
        came with it in one message."""
        self.is_stopped = False

    def push(self, ids: Sequence[int], rows: bytes = b"") -> str:
        """The text that these tokens make deliverable; sets ``is_stopped`` at a stop string. ``rows`` are
        their packed log probabilities, for whoever keeps them."""
        if self._matcher is None:
            return self._with_prefix(self._push(ids))
        pieces: list[str] = []
        for token_id in ids:
            pieces.append(self._push((token_id,)))
            if self.is_stopped:
                break
        return self._with_prefix("".join(pieces))

    def finish(self) -> str:
        """What was held back as a possible stop string, when generation ended without it."""
        return self._with_prefix(self._finish())

    def take_scored(self) -> Sequence[ScoredToken]:
        """The tokens that the text delivered since the last call came from, where they are scored."""
        return ()

    def _push(self, ids: Sequence[int]) -> str:
        text = self._detokenizer.push(ids)
        self.num_tokens += len(ids)
        self.num_chars += len(text)
        if self._matcher is None or not text:
            return text
        emit, self.is_stopped = self._matcher.push(text, may_stop=self.num_tokens > self._min_tokens)
        return emit

    def _finish(self) -> str:
        text = self._detokenizer.finish()
        if self._matcher is None or self.is_stopped:
            return "" if self.is_stopped else text
        emit, self.is_stopped = self._matcher.push(text, may_stop=self.num_tokens > self._min_tokens)
        return emit if self.is_stopped else emit + self._matcher.finish()

    def _with_prefix(self, text: str) -> str:
        if not self._prefix:
            return text
        prefix, self._prefix = self._prefix, ""
        return prefix + text

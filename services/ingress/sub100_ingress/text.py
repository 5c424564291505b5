"""Tokens to text, across prefill, decode and re-placements: one per request."""

from collections.abc import Sequence

from .detokenizer import Detokenizer
from .stops import StopMatcher
from .tokenizer import ModelTokenizer


class TextAssembler:
    """Detokenises and matches stop strings; characters and stops may span any two tokens."""

    def __init__(self, tokenizer: ModelTokenizer, stops: tuple[str, ...]) -> None:
        self._detokenizer = Detokenizer(tokenizer)
        self._matcher = StopMatcher(stops) if stops else None
        self.is_stopped = False

    def push(self, ids: Sequence[int]) -> str:
        """The text that these tokens make deliverable; sets ``is_stopped`` at a stop string."""
        text = self._detokenizer.push(ids)
        if self._matcher is None or not text:
            return text
        emit, self.is_stopped = self._matcher.push(text)
        return emit

    def finish(self) -> str:
        """What was held back as a possible stop string, when generation ended without it."""
        text = self._detokenizer.finish()
        if self._matcher is None or self.is_stopped:
            return "" if self.is_stopped else text
        emit, self.is_stopped = self._matcher.push(text)
        return emit if self.is_stopped else emit + self._matcher.finish()

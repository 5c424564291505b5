"""Which token comes next, without a model: a pure function of prompt, seed and output position.

Equal prompts sampled greedily, or with equal seeds, have equal answers, and an answer that is taken up
again at position k goes on exactly as it would have. Only temperature without a seed varies; then an
answer that is taken up again goes on with the sentence that its tokens come from.
"""

import secrets
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Final, Protocol

import msgspec

from sub100_engine.api import EngineStartError, Work
from sub100_proto import tokens

from . import structured

_TEXT: Final = (
    "The nearest region answers first, and the rest of the fleet never hears of it.",
    " A short prompt fits into one block, while a long one is computed in chunks beside the others.",
    " Every hop writes down the milliseconds it spent, so that nobody has to guess afterwards.",
    " When a worker is lost, another one goes on with the very next token.",
    " Caches remember what was asked before; queues are short because they are bounded.",
    " In the morning the traffic moves from one ocean to the other, and so do the workers.",
    " Numbers such as 3, 14 and 1592 are fine, and so are names: Ada, Grace, Edsger.",
    " Whoever reads this slowly sees the same words as whoever reads it fast.",
)


class Answer(msgspec.Struct, frozen=True):
    """``ids`` from ``start`` on, around and around; EOS after ``length`` tokens."""

    ids: Sequence[int]
    length: int
    start: int = 0

    def token(self, position: int) -> int:
        """The token at an output position; also behind the end, for ``ignore_eos``. 0 if there is none."""
        return self.ids[(self.start + position) % len(self.ids)] if self.ids else 0

    def begins_with(self, output: Sequence[int]) -> bool:
        return all(self.token(position) == token for position, token in enumerate(output))


class AnswerSource(Protocol):
    vocab_size: int

    def open(self, work: Work) -> Answer:
        """The answer to one attempt; raises structured.NoInstance."""
        ...


class CannedAnswers:
    """Sentences, one after the other; the prompt decides with which to begin and when to end. ``encode``
    makes tokens of what a structured answer says."""

    def __init__(
        self,
        sentences: Sequence[Sequence[int]],
        vocab_size: int,
        min_tokens: int,
        max_tokens: int,
        encode: Callable[[str], Sequence[int]] = str.encode,
    ) -> None:
        self.vocab_size = vocab_size
        self._encode = encode
        self._ids = [token for sentence in sentences for token in sentence]
        if not self._ids:
            raise EngineStartError("the canned answer has no tokens")
        self._starts: list[int] = []
        start = 0
        for sentence in sentences:
            self._starts.append(start)
            start += len(sentence)
        self._min = min_tokens
        self._span = max_tokens - min_tokens + 1

    def open(self, work: Work) -> Answer:
        if work.sampling.structured is not None:
            ids = self._encode(structured.example(work.sampling.structured))
            return Answer(ids, len(ids))
        draw = int.from_bytes(_digest(work), "little")
        draw, index = divmod(draw, len(self._starts))
        drawn = Answer(self._ids, self._min + draw % self._span, self._starts[index])
        if not work.output or not _is_free(work):
            return drawn
        others = (Answer(self._ids, drawn.length, start) for start in self._starts)
        return next((answer for answer in others if answer.begins_with(work.output)), drawn)


class ScriptedAnswers:
    """For tests: exact token ids where the script has some for the work, else the other source's."""

    def __init__(self, script: Callable[[Work], Sequence[int] | None], otherwise: AnswerSource) -> None:
        self.vocab_size = otherwise.vocab_size
        self._script = script
        self._otherwise = otherwise

    def open(self, work: Work) -> Answer:
        ids = self._script(work)
        return self._otherwise.open(work) if ids is None else Answer(ids, len(ids))


def arbitrary(vocab_size: int, min_tokens: int, max_tokens: int) -> CannedAnswers:
    """Sentences of token ids that mean nothing."""
    sentences = [[(17 + 31 * s + 7 * i) % vocab_size for i in range(24)] for s in range(16)]
    return CannedAnswers(sentences, vocab_size, min_tokens, max_tokens)


def readable(tokenizer: str, answer_file: str, min_tokens: int, max_tokens: int) -> CannedAnswers:
    """Sentences in a model's own tokens; ``answer_file`` has one a line. Raises EngineStartError."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise EngineStartError("readable answers need the package tokenizers") from error
    path = Path(tokenizer)
    path = path / "tokenizer.json" if path.is_dir() else path
    try:
        text = Path(answer_file).read_text(encoding="utf-8").splitlines() if answer_file else list(_TEXT)
        encoder = Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # tokenizers raises bare Exception
        raise EngineStartError(f"cannot read the sim's tokenizer or answers: {error}") from error

    def encode(text: str) -> list[int]:
        ids: list[int] = encoder.encode(text, add_special_tokens=False).ids
        return ids

    sentences = [ids for line in text if (ids := encode(line))]
    return CannedAnswers(sentences, encoder.get_vocab_size(), min_tokens, max_tokens, encode)


def _is_free(work: Work) -> bool:
    return work.sampling.temperature > 0 and work.sampling.seed is None


def _digest(work: Work) -> bytes:
    hasher = blake2b(tokens.pack(work.prompt), digest_size=8, person=b"sub100.sim")
    if _is_free(work):
        hasher.update(secrets.token_bytes(8))
    elif work.sampling.temperature > 0 and work.sampling.seed is not None:
        hasher.update(work.sampling.seed.to_bytes(9, "little", signed=True))
    return hasher.digest()

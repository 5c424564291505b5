"""What sampling asks of tokens, on an engine that has no model: which may come, and how likely they were.

Everything is a pure function of the request and the output so far, so that an answer that is handed over
or taken up again goes on as it would have.
"""

import math
from collections.abc import Sequence
from typing import Final

from sub100_proto.logprobs import Row
from sub100_proto.sampling import Sampling

_CERTAIN: Final = 100.0
"""OpenAI's bound of ``logit_bias``: at it a token is forced or banned, which is all that is simulated."""

_NUM_LEVELS: Final = 97


class Choice:
    """Which tokens a request allows; ``of`` gives None where it allows all."""

    @classmethod
    def of(cls, sampling: Sampling, vocab_size: int) -> "Choice | None":
        if not (sampling.logit_bias or sampling.bad_words or sampling.allowed_token_ids):
            return None
        return cls(sampling, vocab_size)

    def __init__(self, sampling: Sampling, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._allowed = sampling.allowed_token_ids
        self._bad_words = sampling.bad_words
        bias = sampling.logit_bias
        self._banned = {token for token, value in bias.items() if value <= -_CERTAIN}
        self._forced = next((token for token, value in bias.items() if value >= _CERTAIN), None)

    def pick(self, wanted: int, output: Sequence[int]) -> int:
        """The nearest token to ``wanted`` that may follow ``output``; ``wanted`` itself if none may."""
        banned = self._banned | self._ends_of_bad_words(output)
        first = wanted if self._forced is None else self._forced
        pool = self._allowed or range(self._vocab_size)
        start = first % len(pool)
        if first not in banned and (not self._allowed or first in self._allowed):
            return first
        for step in range(len(pool)):
            token = pool[(start + step) % len(pool)]
            if token not in banned:
                return token
        return wanted

    def _ends_of_bad_words(self, output: Sequence[int]) -> set[int]:
        return {
            word[-1]
            for word in self._bad_words
            if len(word) == 1 or tuple(output[-(len(word) - 1) :]) == word[:-1]
        }


def rows(tokens: Sequence[int], start: int, end: int, num_top: int, vocab_size: int) -> list[Row]:
    """How likely ``tokens[start:end]`` were: each the likeliest after the token before it."""
    return [_row(tokens[i], tokens[i - 1], num_top, vocab_size) for i in range(start, end)]


def _row(token: int, before: int, num_top: int, vocab_size: int) -> Row:
    """The likeliest has less than a half, and every next one half of what the one before it has."""
    level = (token * 31 + before * 17) % _NUM_LEVELS
    logprob = math.log(0.2 + 0.29 * level / _NUM_LEVELS)
    top = tuple(((token + place) % vocab_size, logprob - place * math.log(2)) for place in range(num_top))
    return Row(logprob, 1, top)

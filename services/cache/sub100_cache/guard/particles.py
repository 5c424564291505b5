"""Words of a question that may stand in two places: the particle of a verb, the preposition of what is asked.

``turn the alarm off`` and ``turn off the alarm`` are one wherever both are said, and so are ``at what
temperature does gold melt`` and ``what temperature does gold melt at``."""

from collections.abc import Sequence
from typing import Final

from .lexicon import AUXILIARIES, CLAUSE_OPENERS, WH_WORDS
from .tokens import Token
from .wordlists import stored, words

_PARTICLES: Final = {verb: frozenset(taken.split()) for verb, taken in stored("particles").items()}
_LONGEST_OBJECT: Final = 4
_JOINTS: Final = (
    CLAUSE_OPENERS | AUXILIARIES | WH_WORDS | {"and", "or", "but", "not", "that", ",", "of", "than"}
)
_PRONOUNS: Final = words("it them him her me us you this that these those one")
_PEOPLE: Final = words(
    """
    people person man men woman women guy guys girl girls boy boys owner owners everyone someone anyone
    friend friends boss audience partner partners wife husband reader readers customer customers voter voters
    """
)
"""Dogs turn on their owners, and turn their owners off."""

SWITCHED: Final = words(
    """
    alarm light lights lamp phone tv radio computer laptop heating heater oven camera notifications bluetooth
    authentication wifi mode location tracking subtitles captions sound microphone engine car fan vpn cookies
    javascript autocorrect server router printer machine water gas power console monitor screen speaker
    """
)
"""What ``turn on`` means no turning upon."""

_WAYS: Final = words("road highway motorway street window door hill cliff stairs tower chimney driveway")
"""Which one turns off, or looks out of."""

_OWN: Final = words("my your his its our their")
_BEHIND: Final = words(
    "early quickly completely now today again first safely properly permanently remotely there"
)
_STRANDED: Final = words("in on at for from to with through under into")
_WITHOUT: Final = words("year day date month time century decade way case cases order reason sense")
"""``which year`` and ``in which year`` are the same."""

_FARTHEST_AUXILIARY: Final = 6


def with_particles_first(tokens: Sequence[Token]) -> tuple[Token, ...]:
    """``turn the alarm off`` -> ``turn off the alarm``."""
    found = list(tokens)
    for place, token in enumerate(tokens):
        taken = _PARTICLES.get(token.text)
        if taken is None or place + 1 >= len(found) or found[place + 1].text in taken | _JOINTS:
            continue
        for end in range(place + 2, min(len(found), place + 2 + _LONGEST_OBJECT)):
            text = found[end].text
            if text in taken and not found[end].article and _is_end(found, end + 1):
                if _is_object(found[place + 1 : end], text):
                    found.insert(place + 1, found.pop(end))
                break
            if text in _JOINTS:
                break
    return tuple(found)


def with_preposition_last(tokens: Sequence[Token]) -> tuple[Token, ...]:
    """``at what temperature does gold melt`` -> ``what temperature does gold melt at``."""
    if len(tokens) < 5 or tokens[0].text not in _STRANDED or tokens[1].text not in ("what", "which"):
        return tuple(tokens)
    texts = [token.text for token in tokens]
    is_plain = (
        not {",", "that", "who", "which"} & set(texts[2:])
        and texts[-1] not in CLAUSE_OPENERS
        and texts[2] not in _WITHOUT
    )
    if not is_plain or not any(text in AUXILIARIES for text in texts[2:_FARTHEST_AUXILIARY]):
        return tuple(tokens)
    return (*tokens[1:], tokens[0])


def _is_end(tokens: Sequence[Token], place: int) -> bool:
    """What stands there is no object of a preposition."""
    if place >= len(tokens):
        return True
    token = tokens[place]
    return not token.article and token.text in CLAUSE_OPENERS | _BEHIND | {"and", "or", "but", ","}


def _is_object(between: Sequence[Token], particle: str) -> bool:
    """Pronouns have one place alone; of people a verb may say something else there."""
    texts = {token.text for token in between}
    if texts & (_PRONOUNS | _PEOPLE | _WAYS) or not (between[0].article or between[0].text in _OWN):
        return False
    return particle != "on" or bool(texts & SWITCHED)

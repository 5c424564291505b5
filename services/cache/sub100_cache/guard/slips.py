"""Words of English written with one slip of the pen: ``recieve``, ``diffrence``, ``seperate``.

A slip is one of four things within a word: two neighbours that changed places, a letter that is missing, one
that stands twice, a vowel for another. Only what can be nothing else is corrected: ``tables/slips.txt`` holds
long and common words, and behind each those of its slips that are words, names, or may be formed from them
(``convert`` and ``covert``). All slips of each were looked up for that in SCOWL's largest lists of American
and British English (2020.12.07), in Webster's second and in the embedder's vocabulary; words that another
word's slip could be are corrected to neither, and those whose slips are brands (``Automattic``) are not here.
"""

from typing import Final

from .wordlists import rows_of

_VOWELS: Final = frozenset("aeiou")
SHORTEST: Final = 6
"""In letters: whatever is shorter is left as it is."""

_EXCEPTIONS: Final = {word: frozenset(others) for word, *others in map(str.split, rows_of("slips"))}


def _sound(word: str) -> str:
    """Its first letter, its last, its consonants: only one that is missing makes another of a slip."""
    return word[0] + word[-1] + "".join(sorted(set(word) - _VOWELS))


def _by_sound() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for word in _EXCEPTIONS:
        lacking = {_sound(word[:place] + word[place + 1 :]) for place in range(1, len(word) - 1)}
        for sound in {_sound(word), *lacking}:
            found.setdefault(sound, []).append(word)
    return found


_BY_SOUND: Final = _by_sound()


def corrected(word: str) -> str:
    """The one word that ``word``, in small letters, is a slip of; or ``word``."""
    if len(word) < SHORTEST or word in _EXCEPTIONS:
        return word
    meant = [other for other in _BY_SOUND.get(_sound(word), ()) if _is_slip(word, other)]
    return meant[0] if len(meant) == 1 else word


def _is_slip(written: str, word: str) -> bool:
    """Both begin and end with the same letters."""
    longer = len(written) - len(word)
    if abs(longer) > 1 or written in _EXCEPTIONS[word]:
        return False
    place = next((at for at, (a, b) in enumerate(zip(written, word, strict=False)) if a != b), 0)
    end = len(word) - 2
    if longer == 1:
        return (
            1 < place <= end and written[place] == written[place - 1] and written[place + 1 :] == word[place:]
        )
    if longer == -1:
        is_inner = place < end or (place == end and word[place] == word[place - 1])
        return place > 0 and is_inner and written[place:] == word[place + 1 :]
    if written[place + 1 :] == word[place + 1 :]:
        return written[place] in _VOWELS and word[place] in _VOWELS
    swapped = word[place + 1] + word[place] + word[place + 2 :]
    return place + 1 < len(word) - 1 and written[place:] == swapped

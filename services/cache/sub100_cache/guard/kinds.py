"""One thing, several of them, or their kind: where a question asks the same of each, and where an article
that careless people leave out can stand for no other thing."""

from collections.abc import Sequence
from typing import Final

from .lexicon import CASE_MATTERS, CLAUSE_OPENERS, TITLED, WH_WORDS, WORD_TALK
from .tokens import Token
from .verbs import is_plural
from .wordlists import stored, words

_VERBS: Final = {name: words(listed) for name, listed in stored("verbs").items()}
HANDS_ON: Final = _VERBS["hands"]
"""What is done with things in one way, whoever does it."""

_LISTED: Final = stored("nouns")
_NOUNS: Final = {name: words(listed) for name, listed in _LISTED.items()}
_COUNTABLE: Final = _NOUNS["countable"]
"""Of which there is one or there are several: ``write cover letter`` lacks its article, and is no idiom."""

_DISHES: Final = _NOUNS["dishes"]
_UNIQUE: Final = _NOUNS["unique"]
_UNIQUE_PAIRS: Final = frozenset(tuple(pair.split()) for pair in _LISTED["unique_pairs"].split("|"))
_MADE_OR_SOLD: Final = words(
    """
    stars star starring developed develop made make makes buy sell sells eat calories game film movie book app
    watch stream streaming download cost costs play plays
    """
)
"""Beside one of these it may be a work or a brand: ``who stars in kremlin``."""

_SUPERLATIVES: Final = _NOUNS["superlatives"]
"""Before one thing they cannot do without ``the``; ``best`` and ``most`` can."""

_ENDING: Final = words(
    "and or but work works begin start end flow fall happen occur exist form , is was did do"
)
"""What may follow a thing that was named, and makes no other of it."""

_OF_ONE: Final = words("who which when where")
"""Whoever asks ``when is party`` means one that is known."""

_OWNERS: Final = words("i we you")
_NO_LACK: Final = words(
    """
    play plays played playing turn turned become be use uses used using install import configure run load call
    calls
    """
)
"""To play doctor is not to play a doctor; and in software whatever is used may be a name: ``how do I use
passport in Node``."""

_COUNTED: Final = words(
    """
    pill tablet capsule dose drink beer glass shot cup spoon time day week month year hour minute second
    unit piece bottle pack number one way example reason pound kilogram inch mile foot dollar euro cent degree
    point percent stone liter meter kilometer grade level step
    """
)
_OTHERWISE_MANY: Final = words(
    """
    custom brain manner arm hand eye ear leg force good mean air damage premise quarter
    saving spectacle work color statistic scale short trunk content term ground water remain drawer
    blind brace cloth spirit ash security liberty humanity height rapid game future right stock
    proceed ruin wood fund mark nut effect green blue check draft dart card bowl pool shingle hive
    cramp bend boil sweat chill contact trainer pump slack brief boxer jean odd pain minute glass
    look wit bearing token tongue mass bond draught crab side chip heel stake bang asset pile stitch graphic
    mechanic turn drug period wife string capital
    """
)
"""Several of them may be something else: customs, arms, hives."""

_SOMEBODY: Final = words("i my he his she her they their we our")
"""Why somebody has a headache is another question than why he has headaches."""

_GENERIC_HEADS: Final = frozenset(
    {("<cause>",), ("why",), ("<tips>",)}
    | {("how", auxiliary) for auxiliary in ("do", "is", "can", "should")}
)
"""What they ask is asked of a kind: ``a volcano`` and ``volcanoes`` are the same there. Not so where a thing
is allowed: to bring a friend is not to bring friends."""

_MAX_NOUN: Final = 3
_HOW_TO: Final = "<how-to>"
_MADE: Final = words("make cook bake prepare")
_PLURAL_PARTS: Final = words(
    """
    symptoms benefits causes advantages disadvantages effects risks pros ingredients requirements
    consequences characteristics features uses types stages phases
    """
)
_NO_ARTICLE_BEHIND: Final = (CLAUSE_OPENERS | words("as than per like about into over")) - {"for"}


class Kinds:
    """Which words of two questions of equal length may differ so. ``left`` and ``right`` are their words."""

    def __init__(self, left: Sequence[Token], right: Sequence[Token]) -> None:
        self._left, self._right = left, right
        texts = [token.text for token in left]
        is_of_kinds = (texts[0],) in _GENERIC_HEADS or tuple(texts[:2]) in _GENERIC_HEADS
        if texts[0] != "<cause>" and not _SOMEBODY.isdisjoint(texts):
            is_of_kinds = False
        self._is_of_kinds = is_of_kinds or _is_done_with_one(texts)
        is_done = (
            texts[0] in (_HOW_TO, "<tips>")
            or not _OWNERS.isdisjoint(texts[:3])
            or (self._is_of_kinds and "in" not in texts)  # what is the purpose of array in C
        )
        self._lacks_articles = (
            is_done and texts[0] not in _OF_ONE and WORD_TALK.isdisjoint(texts) and _NO_LACK.isdisjoint(texts)
        )

    def may_differ(self, place: int) -> bool:
        if self._is_of_kinds and (
            _is_generic(self._left, self._right, place) or _is_generic(self._right, self._left, place)
        ):
            return True
        a, b = self._left[place], self._right[place]
        if a.text != b.text:
            return False
        return {a.article, b.article} == {"", "a"} and self._lacks_articles and self._names_one(place)

    def _names_one(self, place: int) -> bool:
        """The word, or one of the next two, is countable and ends there what is named."""
        texts = [token.text for token in self._left]
        if place and texts[place - 1] in _NO_ARTICLE_BEHIND:
            return False
        if (
            place > 1
            and texts[place - 1] == "and"
            and self._left[place - 2].article == self._right[place - 2].article
        ):
            return False  # my landlord and roommate may be one
        for end in range(place, min(len(texts), place + _MAX_NOUN)):
            if end > place and (self._left[end].article or self._right[end].article):
                return False
            is_dish = texts[end] in _DISHES and (texts[1:2] and texts[1] in _MADE)
            if (texts[end] in _COUNTABLE or is_dish) and _ends(texts, end):
                return True
            if texts[end] in CLAUSE_OPENERS:
                return False
        return False


def may_lack_the(left: Sequence[Token], right: Sequence[Token], place: int) -> bool:
    """``[the] symptoms of flu``, ``[the] stock market``: no others are there to be meant."""
    a, b = left[place], right[place]
    if a.text != b.text or {a.article, b.article} != {"", "the"}:
        return False
    texts = [token.text for token in left]
    if not (TITLED | _MADE_OR_SOLD).isdisjoint(texts):
        return False
    if a.text in _UNIQUE:
        return _ends(texts, place)
    if tuple(texts[place : place + 2]) in _UNIQUE_PAIRS:
        return _ends(texts, place + 1)
    if texts[1:2] not in (["is"], ["was"]) or place not in (2, 3):
        return False
    if texts[0] in ("what", "which", "who") and place == 2 and a.text in _SUPERLATIVES:
        return _names(texts[3:4])
    if texts[:2] != ["what", "is"]:
        return False
    end = place if a.text in _PLURAL_PARTS else place + 1
    return end < len(texts) - 1 and texts[end] in _PLURAL_PARTS and texts[end + 1] == "of"


def _names(texts: Sequence[str]) -> bool:
    """There is a word, and it may be a noun."""
    return bool(texts) and texts[0] not in CLAUSE_OPENERS and texts[0] not in _ENDING


def _is_done_with_one(texts: Sequence[str]) -> bool:
    """What one does with a thing, and what it is for, is the same of several."""
    if texts[0] == _HOW_TO:
        return len(texts) > 1 and texts[1] in HANDS_ON | _VERBS["goods"]
    if tuple(texts[:4]) == ("is", "it", "safe", "to"):
        return len(texts) > 4 and texts[4] in HANDS_ON
    if tuple(texts[:2]) == ("can", "i"):
        return len(texts) > 2 and texts[2] in HANDS_ON
    return tuple(texts[:4]) == ("what", "is", "purpose", "of")


def _ends(texts: Sequence[str], place: int) -> bool:
    after = texts[place + 1] if place + 1 < len(texts) else ","
    return after in CLAUSE_OPENERS or after in _ENDING or (after in WH_WORDS and place + 2 < len(texts))


def _is_generic(singular: Sequence[Token], plural: Sequence[Token], place: int) -> bool:
    """``place`` is in ``a <word> thing`` against ``<word> things``: the word that has the article,
    or the thing."""
    for start in range(place, max(-1, place - _MAX_NOUN), -1):
        if singular[start].article == "a":
            break
    else:
        return False
    if plural[start].article or any(token.text in ("have", "had") for token in plural[:place]):
        return False
    for end in range(place, min(len(singular), start + _MAX_NOUN)):
        one, many = singular[end], plural[end]
        if end > start and (one.article or many.article):
            return False
        if one.text != many.text:
            is_named = many.text in CASE_MATTERS or not many.raw.islower()
            return (
                not is_named and one.text not in _COUNTED | _OTHERWISE_MANY and is_plural(one.text, many.text)
            )
    return False

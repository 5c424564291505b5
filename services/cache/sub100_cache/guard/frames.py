"""The ways to put one question: each is brought into one form, named by its head.

A frame says what the whole question wants (a way, a meaning, a price, a reason), so only whole beginnings
and ends are rewritten, and only into what every reader would take for the same question.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from . import lexicon
from .particles import with_particles_first, with_preposition_last
from .rewriting import PRONOUNS, active_form, as_known, with_front_last
from .tokens import Token
from .wordlists import by_first_word, words

HOW_TO: Final = "<how-to>"
MEANING: Final = "<meaning>"
PRICE: Final = "<price>"
CAUSE: Final = "<cause>"


class Question(msgspec.Struct, frozen=True):
    """``is_indirect``: subject and verb stand as in a statement (tell me where the Louvre *is*).
    ``verb``: the place of a participle that stands for its base, where a passive was made active."""

    tokens: tuple[Token, ...]
    is_indirect: bool = False
    verb: int | None = None


class _Rows:
    """Beginnings, each with what it is brought into."""

    def __init__(self, rows: str) -> None:
        self._meant: dict[tuple[str, ...], tuple[str, ...]] = {}
        for row in rows.strip().splitlines():
            left, _, right = row.partition("=")
            self._meant |= {tuple(form.split()): tuple(right.split()) for form in left.split("|")}
        self._forms = by_first_word(self._meant)

    def begun(self, tokens: Sequence[Token]) -> Iterator[tuple[tuple[str, ...], Sequence[Token]]]:
        """Those that ``tokens`` begin with, longest first, each with what follows it: at least a word."""
        if not tokens:
            return
        texts = _texts(tokens)
        for form in self._forms.get(texts[0], ()):
            if len(texts) > len(form) and texts[: len(form)] == form:
                yield form, tokens[len(form) :]

    def meant(self, form: tuple[str, ...]) -> tuple[str, ...]:
        return self._meant[form]


_REQUESTS: Final = _Rows("""
can you | could you | would you | will you | i would like you to | i want you to | i need you to =
i would be grateful if you could | i would appreciate it if you could | would you be able to =
""")
"""Dropped before an imperative."""

_INDIRECT: Final = _Rows("""
tell me | let me know | do you know | do you happen to know | would you know | explain to me | explain =
show me | i would like to know | i want to know | i need to know | i would love to know | help me understand =
i wonder | i am wondering | i was wondering | i am curious | i am trying to understand | describe =
i want to understand | i would like to understand | can you remind me | remind me | teach me =
""")
"""Dropped before a question word; the question is indirect then."""

_HEADS: Final = _Rows(f"""
how do i | how can i | how could i | how to = {HOW_TO}
what is way to | what is way for me to | what is procedure to | what is process to = {HOW_TO}
what are steps to | what is steps to | what steps do i take to | what steps do i follow to = {HOW_TO}
what is steps i follow to | what do i do to | what do i have to do to = {HOW_TO}
walk me through steps to | walk me through how to | guide me through how to | show me steps to = {HOW_TO}
show me how to | tell me how to | explain how to | teach me how to | teach me to | steps to = {HOW_TO}
i want to know how to | i would like to know how to | give me steps to | list steps to = {HOW_TO}
what is meaning of | explain meaning of | what is definition of | give me definition of = {MEANING}
give definition of | tell me meaning of | what is meant by = {MEANING}
what is price of | what is cost of | tell me price of | tell me cost of = {PRICE}
what is cause of | what is causes of | what cause | what causes = {CAUSE}
explain causes of | explain cause of = {CAUSE}
how come | what is reason that | what is reason why | what is reason for which | for what reason = why
which author wrote | who is author of | who was author of = who wrote
who is inventor of | who was inventor of = who invented
who is founder of | who was founder of = who founded
who is composer of | who was composer of = who composed
who is discoverer of | who was discoverer of = who discovered
which is = what is
when is best time to visit = what is the best time to visit
when is best time to plant = what is the best time to plant
when is best time to go = what is the best time to go
when is best time to travel = what is the best time to travel
when is best time to buy = what is the best time to buy
when is best time to book = what is the best time to book
when is best time to eat = what is the best time to eat
when is best time to take = what is the best time to take
when is best time to see = what is the best time to see
when is best time to sell = what is the best time to sell
when is best time to exercise = what is the best time to exercise
when is best time to sleep = what is the best time to sleep
when is best time to study = what is the best time to study
when is best time to post = what is the best time to post
when is best time to prune = what is the best time to prune
when is best time to harvest = what is the best time to harvest
when is best time to fish = what is the best time to fish
when is best time to start = what is the best time to start
when is best time to move = what is the best time to move
how tall is = what is the height of
how deep is = what is the depth of
how heavy is = what is the weight of
how old is = what is the age of
how old was = what was the age of
what age do = how old do
what age must = how old must
what is number of people in = what is the population of
how many people live in = what is the population of
what is location of = where is
which = what
is it fine to | is it alright to | is it okay if i | is it okay for me to = is it okay to
difference between = what is the difference between
differences between | what is differences between = what is the difference between
best way to = what is the best way to
meaning of | definition of = {MEANING}
price of | cost of = {PRICE}
what is best way i can | what is best way for me to = what is the best way to
is it possible for me to | is there any way i can = can i
""")
_STATEMENT_ORDER: Final = frozenset({"how come", "what is reason that", "what is reason why"})
_HEAD_ENDS: Final = {"where is": ("located", "situated")}
_RELATIONAL: Final = words(
    """
    capital population height age size area currency president author length weight price cost depth ceo
    founder director meaning definition symbol birthplace birthday purpose diameter radius mass speed
    location prime flag anthem language nickname
    """
)
_DOABLE: Final = words(
    "write create give find provide convert teach help generate compose solve calculate compute show"
)
"""What people do too, and not assistants alone."""

_TEXTS: Final = words(
    """
    poem essay story email letter function program script code summary paragraph haiku song speech tweet list
    example examples table outline recipe plan joke query regex synonym synonyms name names word words ideas
    explanation description definition answer sentence text message post title headline caption quote slogan
    overview introduction derivative integral equation sum average area volume root roots
    """
)
_MEASURES: Final = words(
    """
    dose cup spoon tablespoon teaspoon pinch portion serving unit dash shot glass pint gallon quart ounce
    pound gram kilogram liter mile kilometer meter acre stone ton tonne dozen bit lot teaspoonful handful
    """
)
"""Of which ``how much is`` may ask what it amounts to."""

_FRONTED: Final = words("in on at by for with from to under during")


def question(tokens: Sequence[Token], *, names_wording: bool = False) -> Question:
    """``tokens`` are canonical. Where words are spoken of, their order is part of what they are."""
    asked, is_indirect = _without_request(with_front_last(list(tokens)))
    if not names_wording and not any(token.text in lexicon.WORD_TALK for token in asked):
        asked = with_preposition_last(with_particles_first(asked))
    return _with_head(_without_end(_with_the(_with_relation(Question(asked, is_indirect)))))


def without_request(asked: Sequence[Token]) -> tuple[Token, ...]:
    """``can you tell me where X is`` -> ``where X is``; ``could you list X`` -> ``list X``."""
    return _without_request(asked)[0]


def _placed(words: tuple[str, ...]) -> tuple[Token, ...]:
    """``the`` is a property of the word after it."""
    before = ("", *words)
    return tuple(
        Token(word, word, "the" if previous == "the" else "")
        for previous, word in zip(before, words, strict=False)
        if word != "the"
    )


def _texts(tokens: Sequence[Token]) -> tuple[str, ...]:
    return tuple(token.text for token in tokens)


def _without_request(asked: Sequence[Token]) -> tuple[tuple[Token, ...], bool]:
    """Also whether what is left stands in the order of a statement."""
    tokens = asked
    for _, rest in _REQUESTS.begun(tokens):
        if rest[0].text in lexicon.IMPERATIVES and not _may_ask_ability(rest):
            tokens = rest
            break
    for form, rest in _INDIRECT.begun(tokens):
        if form[0] in ("explain", "describe") and rest[0].text not in ("how", "why"):
            continue  # what he said is one thing, and what it means another
        if rest[0].text in lexicon.WH_WORDS and _texts(rest[:2]) != ("how", "to"):
            return tuple(rest), True
        if rest[0].text == "if" and len(rest) > 3:
            return tuple(rest[1:]), True
    return tuple(tokens), False


def _may_ask_ability(rest: Sequence[Token]) -> bool:
    """``can you write a will by hand`` may ask whether it can be done; ``write a poem`` does not."""
    texts = _texts(rest)
    if texts[0] not in _DOABLE or texts[1:2] == ("me",):
        return False
    return not any(text in _TEXTS or text[:1].isdigit() for text in texts[1:6])


def _with_relation(found: Question) -> Question:
    """``France 's capital`` -> ``capital of France``, where it ends a question of ``what|who is``."""
    texts = _texts(found.tokens)
    if (
        texts[:2] in (("what", "is"), ("who", "is"), ("what", "was"), ("who", "was"))
        and texts.count("'s") == 1
    ):
        mark = texts.index("'s")
        owner, owned = found.tokens[2:mark], found.tokens[mark + 1 :]
        if owner and owned and owned[0].text in _RELATIONAL:
            of = Token("of", "of")
            thing = msgspec.structs.replace(owned[0], article="the")
            tokens = (*found.tokens[:2], thing, of, *owner, *owned[1:])
            return msgspec.structs.replace(found, tokens=tokens)
    return found


def _with_the(found: Question) -> Question:
    """``what is [the] capital of France``: there is one, so nothing else can be meant."""
    tokens, texts = found.tokens, _texts(found.tokens)
    is_one = (
        texts[:1] in (("what",), ("who",)) and texts[1:2] in (("is",), ("was",)) and texts[3:4] == ("of",)
    )
    if is_one and texts[2] in _RELATIONAL and not tokens[2].article:
        named = msgspec.structs.replace(tokens[2], article="the")
        return msgspec.structs.replace(found, tokens=(*tokens[:2], named, *tokens[3:]))
    return found


def _without_end(found: Question) -> Question:
    texts = _texts(found.tokens)
    for head, ends in _HEAD_ENDS.items():
        if texts[:2] == tuple(head.split()) and texts[-1] in ends and len(texts) > 3:
            return msgspec.structs.replace(found, tokens=found.tokens[:-1])
    return found


def _with_head(found: Question) -> Question:
    tokens, texts = found.tokens, _texts(found.tokens)
    if texts[:2] == ("what", "do") and texts[-1] == "mean" and len(texts) > 3 and texts[2] not in PRONOUNS:
        return Question((Token(MEANING, ""), *tokens[2:-1]))
    if texts[:1] == ("define",) and 2 <= len(texts) <= 4:
        return Question((Token(MEANING, ""), *tokens[1:]))
    if texts[:3] == ("how", "much", "do") and "cost" in texts[3:]:
        cost = texts.index("cost")
        return Question((Token(PRICE, ""), *tokens[3:cost], *tokens[cost + 1 :]))
    if texts[:3] == ("how", "much", "is") and len(texts) > 3 and texts[3] not in _MEASURES:
        return Question((Token(PRICE, ""), *tokens[3:]))
    if texts[:2] == ("why", "do") and texts[-1] == "happen" and len(texts) > 3:
        return Question((Token(CAUSE, ""), *tokens[2:-1]))
    if (active := active_form(tokens)) is not None:
        return Question(active[0], verb=active[1])
    if (other := as_known(tokens)) is not None:
        return Question(other)
    for form, rest in _HEADS.begun(tokens):
        if form == ("which",) and rest[0].text in lexicon.AUXILIARIES:
            continue  # of those that were named
        if form[0] != "give" and any(token.article == "a" for token in tokens[: len(form)]):
            continue  # a cause is not the cause
        is_indirect = found.is_indirect or " ".join(form) in _STATEMENT_ORDER
        return Question((*_placed(_HEADS.meant(form)), *rest), is_indirect=is_indirect)
    return found

"""The ways to put one question: each is brought into one form, named by its head.

A frame says what the whole question wants (a way, a meaning, a price, a reason), so only whole beginnings
and ends are rewritten, and only into what every reader would take for the same question.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from . import lexicon
from .fronted import with_front_last
from .kinds import HANDS_ON
from .particles import with_particles_first, with_preposition_last
from .phrasing import in_place
from .rewriting import PRONOUNS, active_form, as_known
from .tokens import Token
from .wordlists import by_first_word, rows_of, words

HOW_TO: Final = "<how-to>"
MEANING: Final = "<meaning>"
DEFINITION: Final = "<definition>"
COST: Final = "<cost>"


class Question(msgspec.Struct, frozen=True):
    """``is_indirect``: subject and verb stand as in a statement (tell me where the Louvre *is*).
    ``verb``: the place of a participle that stands for its base, where a passive was made active, or of a
    gerund that does."""

    tokens: tuple[Token, ...]
    is_indirect: bool = False
    verb: int | None = None
    names_wording: bool = False
    """A task with words is spoken of, or something quoted: each word and capital counts as it is."""


class _Rows:
    """Beginnings, each with what it is brought into."""

    def __init__(self, name: str) -> None:
        self._meant: dict[tuple[str, ...], tuple[str, ...]] = {}
        for row in rows_of(name):
            left, _, right = row.partition("=")
            self._meant |= {tuple(form.split()): tuple(right.split()) for form in left.split("|")}
        self._forms = by_first_word(self._meant)

    def begun(self, tokens: Sequence[Token]) -> Iterator[tuple[tuple[str, ...], Sequence[Token]]]:
        """Those that ``tokens`` begin with, longest first, each with what follows it: at least a word."""
        forms = self._forms.get(tokens[0].text) if tokens else None
        if forms is None:
            return
        texts = _texts(tokens)
        for form in forms:
            if len(texts) > len(form) and texts[: len(form)] == form:
                yield form, tokens[len(form) :]

    def meant(self, form: tuple[str, ...]) -> tuple[str, ...]:
        return self._meant[form]


_REQUESTS: Final = _Rows("requests")
"""Dropped before an imperative."""

_INDIRECT: Final = _Rows("indirect")
"""Dropped before a question word; the question is indirect then."""

_ALSO_ASKED: Final = frozenset({("let", "me", "know"), ("help", "me", "understand")})
_NO_ABILITY: Final = words(
    "like want need grateful appreciate hoping ask request kind great nice lovely helpful wonderful love"
)
"""A request with one of these asks for no ability."""

_EXPLAINED: Final = words("explain explaining describe clarify curious about")
_PEOPLE: Final = words(
    """
    kids kid child children baby babies toddler toddlers teen teens teenager teenagers student students
    beginner beginners dummies layman laymen adults people somebody someone everyone
    """
)
_OWN: Final = words("my your his her our their")
_THEN: Final = words("when if whether")
_HEADS: Final = _Rows("heads")
_GERUNDS: Final = _Rows("gerunds")
"""Before a verb in -ing: ``steps for replacing a chain`` are steps to replace it."""

_STATEMENT_ORDER: Final = frozenset(
    {"how come", "why is it that", "what is reason that", "what is reason why"}
)
_HEAD_ENDS: Final = {"where is": ("located", "situated")}
_RELATIONAL: Final = words(
    """
    capital population height age size area currency president author length weight price cost depth ceo
    founder director meaning definition symbol birthplace birthday purpose diameter radius mass speed
    location prime flag anthem language nickname
    """
)
_PLACES: Final = words(
    "river mountain peak lake city town island desert volcano waterfall glacier bridge building"
)
"""``the largest city of Norway`` is that in it."""

_PARTS: Final = words(
    "symptoms benefits causes advantages disadvantages effects risks ingredients capital population"
)
"""``symptoms of flu``, as one types who wants to be told."""

_SINGLE: Final = words("capital population")

_NO_NOUNS: Final = words(
    "bake sew repot propagate descale sharpen defrost reheat marinate unclog lubricate carve debone knead"
)
"""What is done with the hands, and by no name: ``how does one plant survive``."""

_NO_WAY: Final = words("look sound feel seem be have owe know")
"""``how do I look`` asks for no way to do it."""

_DOABLE: Final = words(
    """
    write create give find provide convert teach help generate compose solve calculate compute show name list
    tell compare draft explain describe recommend define
    """
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
_TELLING: Final = words("tell know determine")
_WRITTEN: Final = words("write draft compose create generate")
_WONDERING: Final = words("wonder wondering think chance possible able")
"""Beside one of these whoever could do it may be asked about, whatever it is."""

_FARTHEST_IF: Final = 6
_LONGEST_THING: Final = 6
_MANNER: Final = words("so that this these up and or")
_OF_SOMEBODY: Final = PRONOUNS | words("my your his our their its yourself myself")


def question(tokens: Sequence[Token], *, names_wording: bool = False) -> Question:
    """``tokens`` are canonical. Where words are spoken of, their order is part of what they are."""
    asked, is_indirect = _without_request(_asked_for(with_front_last(list(tokens))))
    if not names_wording and not any(token.text in lexicon.WORD_TALK for token in asked):
        asked = with_preposition_last(with_particles_first(asked))
        asked = in_place(_without_filler(_with_if(asked)))
    asked = _without_me(asked)
    found = _with_head(_without_end(_with_the(_with_relation(Question(asked, is_indirect)))))
    return msgspec.structs.replace(found, names_wording=True) if names_wording else found


def _placed(words: tuple[str, ...]) -> tuple[Token, ...]:
    """``the`` is a property of the word after it."""
    before = ("", *words)
    return tuple(
        Token(word, word, "the" if previous == "the" else "")
        for previous, word in zip(before, words, strict=False)
        if word != "the"
    )


def _texts(tokens: Sequence[Token]) -> tuple[str, ...]:
    return tuple([token.text for token in tokens])


def _without_request(asked: Sequence[Token]) -> tuple[tuple[Token, ...], bool]:
    """Also whether what is left stands in the order of a statement."""
    tokens = asked
    for form, rest in _REQUESTS.begun(tokens):
        is_asked = rest[0].text in lexicon.IMPERATIVES or _texts(rest[:3]) in _ALSO_ASKED
        if is_asked and (not _NO_ABILITY.isdisjoint(form) or not _may_ask_ability(form, rest)):
            tokens = rest
            break
    for form, rest in _INDIRECT.begun(tokens):
        if rest[0].text == "," and form[-1] == "me" and _is_direct(_texts(rest[1:3])):
            return tuple(rest[1:]), False
        if not _EXPLAINED.isdisjoint(form) and rest[0].text not in ("how", "why"):
            continue  # what he said is one thing, and what it means another
        if not _EXPLAINED.isdisjoint(form) and _is_told_to(rest):
            continue
        if form[0] == "let" and rest[0].text in _THEN:
            continue  # as soon as it happens
        if rest[0].text in lexicon.WH_WORDS and _texts(rest[:2]) != ("how", "to"):
            return tuple(rest), True
        if rest[0].text in ("if", "whether") and len(rest) > 3:
            return tuple(rest[1:]), True
    return tuple(tokens), False


def _is_direct(texts: Sequence[str]) -> bool:
    return len(texts) == 2 and texts[0] in lexicon.WH_WORDS and texts[1] in lexicon.AUXILIARIES


def _is_told_to(rest: Sequence[Token]) -> bool:
    """``how taxes work for kids``: who asks that taxes be explained may mean that kids are told."""
    texts = _texts(rest)
    if "for" in texts:
        return True
    return any(
        text == "to" and (after.article == "a" or after.text in _PEOPLE | _OWN)
        for text, after in zip(texts, rest[1:], strict=False)
    )


def _may_ask_ability(form: Sequence[str], rest: Sequence[Token]) -> bool:
    """``can you write a will by hand`` may ask whether it can be done; ``write a poem`` does not."""
    texts = _texts(rest)
    if texts[0] == "explain" and texts[1:2] in (("how",), ("why",)):
        return False
    if texts[0] not in _DOABLE or texts[1:2] == ("me",) or texts[1:3] == ("to", "me"):
        return False
    if not _WONDERING.isdisjoint(form):
        return True
    thing = itertools.takewhile(lambda text: text not in lexicon.CLAUSE_OPENERS, texts[1:_LONGEST_THING])
    return not any(text in _TEXTS or text[:1].isdigit() for text in thing)


def _asked_for(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
    """``symptoms of flu`` -> ``what is the symptoms of flu``, and so ``list the symptoms of flu``."""
    named, texts = tokens, _texts(tokens[:4])
    if texts[0] == "list" and texts[1:] and texts[1] in _PARTS - _SINGLE and tokens[1].article != "a":
        named, texts = (msgspec.structs.replace(tokens[1], article=""), *tokens[2:]), texts[1:]
    size = 2 if texts[:2] == ("side", "effects") else 1
    if len(named) < size + 2 or texts[size - 1] not in _PARTS or named[size].text != "of" or named[0].article:
        return tokens
    first = msgspec.structs.replace(named[0], article="the")
    return (Token("what", "what"), Token("is", "is"), first, *named[1:])


def _without_me(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
    """``write me a poem``: for whom is clear."""
    texts = _texts(tokens)
    is_for_me = texts[0] in _WRITTEN and texts[1:2] == ("me",) and len(texts) > 2
    if is_for_me and (tokens[2].article == "a" or texts[2][0].isdigit()):
        return (tokens[0], *tokens[2:])
    return tokens


def _without_filler(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
    """``how exactly does it work``, ``how does it actually work``."""
    texts = _texts(tokens)
    if len(texts) > 3 and texts[0] in ("what", "how", "why") and texts[1] == "exactly":
        return (tokens[0], *tokens[2:])
    if texts[:2] == ("how", "do") and texts[-2:] == ("actually", "work"):
        return (*tokens[:-2], tokens[-1])
    return tokens


def _with_if(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
    """``how can I tell whether`` -> ``how can I tell if``: it stands for a condition nowhere there."""
    texts = _texts(tokens)
    for place in range(1, min(len(texts) - 2, _FARTHEST_IF)):
        if texts[place] == "whether" and texts[place - 1] in _TELLING and texts[0] == "how":
            return (*tokens[:place], Token("if", "if"), *tokens[place + 1 :])
    return tokens


def _with_relation(found: Question) -> Question:
    """``France 's capital`` -> ``capital of France``, where it ends a question of ``what|who is``."""
    texts = _texts(found.tokens)
    if (
        texts[:2] in (("what", "is"), ("who", "is"), ("what", "was"), ("who", "was"))
        and texts.count("'s") == 1
    ):
        mark = texts.index("'s")
        owner, owned = found.tokens[2:mark], found.tokens[mark + 1 :]
        if len(owned) == 2 and owned[0].text.endswith("est") and owned[1].text in _PLACES:
            largest = (msgspec.structs.replace(owned[0], article="the"), owned[1])
            tokens = (*found.tokens[:2], *largest, Token("in", "in"), *owner)
            return msgspec.structs.replace(found, tokens=tokens)
        if owner and owned and owned[0].text in _RELATIONAL:
            of = Token("of", "of")
            thing = msgspec.structs.replace(owned[0], article="the")
            tokens = (*found.tokens[:2], thing, of, *owner, *owned[1:])
            return msgspec.structs.replace(found, tokens=tokens)
    is_place = texts[:2] == ("what", "is") and texts[4:5] == ("of",) and texts[3] in _PLACES
    if is_place and texts[2].endswith("est") and len(texts) > 5:
        tokens = (*found.tokens[:4], Token("in", "in"), *found.tokens[5:])
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
        return Question((Token(DEFINITION, ""), *tokens[1:]))
    if texts[:3] == ("how", "much", "do") and "cost" in texts[3:]:
        cost = texts.index("cost")
        return Question((Token(COST, ""), *tokens[3:cost], *tokens[cost + 1 :]))
    if texts[:3] == ("how", "much", "do") and texts[-1] == "weigh" and len(texts) > 4:
        return Question((*_placed(("what", "is", "the", "weight", "of")), *tokens[3:-1]))
    stands_for = texts[:2] == ("what", "do") and texts[-2:] == ("stand", "for")
    is_short_for = texts[:2] == ("what", "is") and texts[-2:] == ("short", "for")
    if (stands_for or is_short_for) and len(texts) == 5 and tokens[2].raw.isupper() and len(texts[2]) > 1:
        return Question((Token("<stands-for>", ""), *tokens[2:-2]))
    if texts[0] in ("list", "name") and len(texts) > 2 and texts[1][:1].isdigit():
        return Question((Token("name", ""), *tokens[1:]))
    if (active := active_form(tokens)) is not None:
        asked = (Token("what", "what"), *active[0][1:]) if active[0][0].text == "which" else active[0]
        return Question(asked, verb=active[1])
    if (other := as_known(tokens)) is not None:
        return Question(other)
    for form, rest in _GERUNDS.begun(tokens):
        if not rest[0].text.endswith("ing") or rest[0].article:
            continue
        head = _placed(_GERUNDS.meant(form))
        if len(rest) > 1 and (rest[1].article or rest[1].text in _OF_SOMEBODY):
            return Question((*head, *rest), verb=len(head))
        if head[0].text == "<tips>":  # on washing machines, or how to wash them
            return Question((*head, *rest))
    is_anybody = texts[:3] == ("how", "do", "you") or (
        texts[:3] in (("how", "do", "one"), ("how", "can", "one")) and texts[3:4] and texts[3] in _NO_NOUNS
    )
    if is_anybody and _is_done_by_anybody(tokens[3:]):
        return Question((Token(HOW_TO, ""), *tokens[3:]))
    if found.is_indirect and texts[:2] == ("how", "i"):  # I would like to know how I can unclog a drain
        done = tokens[3:] if texts[2:3] == ("can",) else tokens[2:]
        if len(done) > 1 and done[0].text in HANDS_ON:
            return Question((Token(HOW_TO, ""), *done))
    for form, rest in _HEADS.begun(tokens):
        if form == ("which",) and rest[0].text in lexicon.AUXILIARIES:
            continue  # of those that were named
        if form == ("which", "is") and rest[0].article != "the":
            continue
        if form[0] != "give" and any(token.article == "a" for token in tokens[: len(form)]):
            continue  # a cause is not the cause
        if _HEADS.meant(form) == (HOW_TO,) and rest[0].text in _NO_WAY:
            continue
        is_indirect = found.is_indirect or " ".join(form) in _STATEMENT_ORDER
        return Question((*_placed(_HEADS.meant(form)), *rest), is_indirect=is_indirect)
    return found


def _is_done_by_anybody(done: Sequence[Token]) -> bool:
    """``how do you boil an egg`` asks for the way; ``how do you clean your rooms`` asks somebody."""
    if len(done) < 2 or done[0].text not in HANDS_ON:
        return False
    is_of_kind = done[1].text not in lexicon.CLAUSE_OPENERS | _MANNER
    return is_of_kind and not any(token.article == "the" or token.text in _OF_SOMEBODY for token in done)

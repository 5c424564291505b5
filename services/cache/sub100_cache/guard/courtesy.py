"""Greetings, politeness and remarks around a question: whole phrases of closed lists, set off from it.

Nothing else is small talk: a clause that tells who did what to whom is part of what is asked. Nor is a
courtesy one where words are what the question is about (``what does please mean``)."""

from typing import Final

from . import lexicon
from .equivalents import AGREEMENT
from .kinds import HANDS_ON
from .tokens import Token
from .wordlists import Phrases, by_first_word, rows_of, words


def _phrases(name: str) -> Phrases:
    return by_first_word({tuple(row.split()) for row in rows_of(name)})


_GREETINGS: Final = _phrases("greetings")
_POLITE: Final = _phrases("polite")
_REMARKS: Final = _phrases("remarks")
"""That somebody asks, and no more."""

_TOLD: Final = _phrases("told")
"""Why somebody asks: nothing where the question stands alone, and is of nobody."""

_SOUGHT: Final = _phrases("sought")
"""Nothing where the question stands alone, whoever it is of."""

_CONDITIONS: Final = _phrases("conditions")
"""Of whoever is asked to do something: nothing beside ``could you``, and beside ``should I`` a condition."""

_TRAILING: Final = _phrases("trailing")
_REFERRING: Final = words(
    """
    i me my mine we us our ours it its this that these those he him his she her they them their there then so
    one
    """
)
"""A question with one of these may hang on what was told before: ``I keep forgetting, what do I do?``"""

_NO_NOUN: Final = words(
    """
    to and or not no of for with say give my your as like a the that will can do be it would could should must
    may might by named titled
    """
)
_OF_ASKER: Final = words("i me my mine we us our ours")
TALK_ABROAD: Final = words(
    """
    bedeutet bedeuten heißt heisst heißen schreibt schreiben schreib sagt sagen sage sag wort höflich
    antwortet significa
    significan decir dice dicen dijo digo escribe escribir palabra quiere veut dire signifie
    écrit écrire écris
    dit dis mot poli répond vuol scrive scrivere parola quer diz dizer escreve escrever palavra
    betekent zegt zeggen schrijf woord
    """
)
_MANNERS: Final = words(
    """
    polite politer politely impolite politeness rude ruder manners etiquette courteous courtesy reply respond
    response greet greeting greetings goodbye typing type text apology apologize
    """
)
_NAMED: Final = frozenset(
    word for word in (*_GREETINGS, *_TRAILING, "sorry", "excuse") if len(word) > 1
) - words("would any i have just asking best kind good hope dear muchas muchos por per vielen much guten")
"""Where one is left, courtesies may be what is asked about."""

_PLEASE: Final = by_first_word({("please",), ("pls",), ("plz",), ("kindly",)})
_WITHOUT_COMMA: Final = frozenset({("please",), ("pls",), ("plz",), ("kindly",), ("quick", "question")})
_ASKS: Final = lexicon.WH_WORDS | lexicon.IMPERATIVES
_ASKS_YOU: Final = words("can could would will do")
_ASKING: Final = lexicon.AUXILIARIES | frozenset(AGREEMENT)
"""As they are written: agreement comes later."""

_BEGINNINGS: Final = _ASKS | _ASKING | lexicon.FOREIGN
_WISHES: Final = words("would want need wonder")
_JUDGED: Final = words("safe normal legal illegal dangerous healthy unhealthy bad okay ok possible")
_DONE: Final = HANDS_ON | words("eat drink take mix drive")
_BEFORE_WRITING: Final = words(
    "please pls plz kindly can could would will you i want need like to hi hello hey there be ,"
)
_SENT: Final = words(
    """
    reads reading says ends ending signed labeled saying called entitled titled yes no yeah yep nope nah oh ok
    okay sorry hello hi maybe
    """
)
"""Behind one of these a courtesy may be of the text that is asked for."""

_WITH_TEXT: Final = words("ends ending line says reads saying titled entitled called signed containing")
_TELLING: Final = words("write rewrite draft compose tell")
"""A condition behind one of these may be told: ``tell him I will come, if that is okay``."""

_HANGS_ON: Final = words("it this that these those they them he him she her one ones")
_MOST_POLITE: Final = 3
_SHORTEST: Final = 4
"""Fewer words are no question of their own behind two courtesies, or behind what was told."""


def without_courtesy(tokens: list[Token], *, names_wording: bool = False) -> list[Token]:
    """Articles are gone already. All tokens, or a question that is whole without its courtesies.
    ``names_wording``: its last words may be what is asked about, as in ``how do I spell thanks``."""
    texts = {token.text for token in tokens}
    if "write" in texts and not names_wording and _sets_writing(tokens):
        texts.remove("write")
    shorter = _without_first(_trim(tokens), _GREETINGS)
    if names_wording and texts & _HANGS_ON:  # hello, is this spelled right
        return tokens
    if names_wording:
        shorter = _without_first(shorter, _PLEASE)
    if names_wording or texts & (lexicon.WORD_TALK | TALK_ABROAD | _MANNERS):
        return tokens if _names_courtesy(shorter) else shorter
    greeted = len(shorter) < len(tokens)
    shorter = _without_condition(_without_please(_without_end(shorter)))
    asked = _without_told(_without_first(_without_polite(shorter), _REMARKS))
    if greeted and len(asked) < min(_SHORTEST, len(shorter)):
        asked = shorter
    return tokens if _names_courtesy(asked) else asked


def _sets_writing(tokens: list[Token]) -> bool:
    """``could you please write a poem``: to write is what is to be done, and nothing that is asked about."""
    texts = [token.text for token in tokens]
    return texts.count("write") == 1 and _BEFORE_WRITING.issuperset(texts[: texts.index("write")])


def _without_polite(tokens: list[Token]) -> list[Token]:
    """``so, um, how ...``: a few may follow one another."""
    for _ in range(_MOST_POLITE):
        shorter = _without_first(tokens, _POLITE)
        if len(shorter) == len(tokens):
            break
        tokens = shorter
    return tokens


def _names_courtesy(tokens: list[Token]) -> bool:
    return any(token.text in _NAMED for token in tokens)


def _without_first(tokens: list[Token], phrases: Phrases) -> list[Token]:
    """``Hello, what is ...`` greets; ``Hello world in Python`` does not, nor ``Hello was sung by whom``."""
    for phrase in _begun(tokens, phrases):
        size = len(phrase)
        rest = [token.text for token in tokens[size:]]
        if len(rest) < 2:
            continue
        if rest[0] == ",":
            after = _trim(tokens[size:])
            if phrase[0] == "sorry" and after[0].text == "but":
                after = after[1:]
            is_opening = (
                _wishes(after)
                or after[0].text in _BEGINNINGS
                or any(_begun(after, others) for others in (_POLITE, _REMARKS, _TOLD))
            )
            return after if len(after) > 1 and is_opening and not _hangs_on(after) else tokens
        if phrases is _GREETINGS and _is_remarked(tokens[size:]):
            return tokens[size:]
        is_closed = phrases is _GREETINGS or phrase in _WITHOUT_COMMA
        if phrase == ("so",) and rest[0] in lexicon.WH_WORDS and rest[1] in _ASKING:  # so what if it rains
            return tokens[size:]
        asks = (
            rest[0] in _ASKS
            or rest[:2] == ["let", "me"]
            or (rest[0] in _ASKS_YOU and rest[1] in ("you", "i"))
        )
        is_own = phrases is not _GREETINGS or not _hangs_on(tokens[size:])
        return tokens[size:] if is_closed and asks and is_own and len(rest) > 2 else tokens
    return tokens


def _wishes(tokens: list[Token]) -> bool:
    """``I would like to know ...``"""
    return len(tokens) > 2 and tokens[0].text == "i" and tokens[1].text in _WISHES


def _is_remarked(tokens: list[Token]) -> bool:
    """``hey quick question, ...``: a remark that is a clause of its own."""
    for phrase in (phrase for phrases in (_POLITE, _REMARKS) for phrase in _begun(tokens, phrases)):
        size = len(phrase)
        if size > 1 and len(tokens) > size + 2 and tokens[size].text == ",":
            return True
    return False


def _without_condition(tokens: list[Token]) -> list[Token]:
    """``if you don't mind, could you explain ...``, and behind it."""
    texts = [token.text for token in tokens]
    if texts.count(",") != 1:
        return tokens
    comma = texts.index(",")
    before, behind = tokens[:comma], tokens[comma + 1 :]
    if _is_one_of(texts[:comma], _CONDITIONS) and _requests(behind):
        return behind
    is_told = not _TELLING.isdisjoint(texts[:comma])
    return (
        before
        if _is_one_of(texts[comma + 1 :], _CONDITIONS) and _requests(before) and not is_told
        else tokens
    )


def _requests(tokens: list[Token]) -> bool:
    texts = [token.text for token in tokens]
    if len(texts) < _SHORTEST:
        return False
    if texts[0] in ("can", "could", "would", "will") and texts[1] == "you":
        texts = texts[2:]
    if texts[0] in ("please", "kindly"):
        texts = texts[1:]
    return texts[0] in lexicon.IMPERATIVES and not _HANGS_ON & set(texts)


def _hangs_on(tokens: list[Token]) -> bool:
    """``Sorry, who sang it?``; ``is it safe to eat raw eggs`` speaks of nothing that was named before."""
    texts = [token.text for token in tokens]
    is_judged = len(texts) > 5 and texts[:2] == ["is", "it"] and texts[2] in _JUDGED and texts[3] == "to"
    if is_judged and texts[4] in _DONE and texts[5] not in lexicon.CLAUSE_OPENERS:  # no song, and no program
        texts = texts[4:]
    return any(text in _HANGS_ON for text in texts)


def _begun(tokens: list[Token], phrases: Phrases) -> list[tuple[str, ...]]:
    """Those that ``tokens`` begin with, longest first."""
    likely = phrases.get(tokens[0].text, ()) if tokens else ()
    if not likely:
        return []
    texts = tuple(token.text for token in tokens)
    return [phrase for phrase in likely if texts[: len(phrase)] == phrase]


def _is_one_of(texts: list[str], phrases: Phrases) -> bool:
    return bool(texts) and tuple(texts) in phrases.get(texts[0], ())


def _without_please(tokens: list[Token]) -> list[Token]:
    """``could you please tell me``: between who is asked and what is to be done."""
    texts = [token.text for token in tokens]
    for place in (place for place in range(1, len(texts) - 3) if texts[place] == "me"):
        size = 4 if texts[place + 1] == "," else 2  # me, please, what
        asked = ["please"] if size == 2 else [",", "please", ","]
        if (
            texts[place - 1] == "tell"
            and texts[place + 1 : place + size] == asked
            and texts[place + size] in _ASKS
        ):
            return [*tokens[: place + 1], *tokens[place + size :]]
    if texts[1:2] == ["you"] and texts[0] in _ASKS_YOU and texts[2:3] in (["please"], ["kindly"]):
        return [*tokens[:2], *tokens[3:]] if texts[3:4] and texts[3] in lexicon.IMPERATIVES else tokens
    return tokens


def _without_told(tokens: list[Token]) -> list[Token]:
    """Without a first clause that only tells why somebody asks."""
    texts = [token.text for token in tokens]
    start = 1 if texts[:1] == ["so"] else 0
    clause = texts.index(",") if "," in texts else 0
    after = _trim(tokens[clause:])
    if after and after[0].text == "but":
        after = after[1:]
    if clause and _is_one_of(texts[start:clause], _REMARKS) and len(after) > 1:
        return after
    has_sought = bool(clause) and _is_one_of(texts[start:clause], _SOUGHT)
    hanging = _REFERRING - _OF_ASKER if has_sought else _REFERRING
    is_told = has_sought or (bool(clause) and _is_one_of(texts[start:clause], _TOLD))
    stands_alone = len(after) >= _SHORTEST and not {token.text for token in after} & hanging
    return after if is_told and stands_alone else tokens


def _without_end(tokens: list[Token]) -> list[Token]:
    """``..., thanks`` takes leave; ``how do I answer thanks`` does not."""
    texts = [token.text for token in tokens]
    for comma in (place for place in range(2, len(texts)) if texts[place] == ","):
        is_sent = texts[comma - 1] in _SENT or ("write" in texts and not _WITH_TEXT.isdisjoint(texts[:comma]))
        if _is_one_of(texts[comma + 1 :], _TRAILING) and not is_sent:
            return _trim(tokens[:comma])
    return tokens[:-1] if _ends_politely(texts) else tokens


def _ends_politely(texts: list[str]) -> bool:
    """``could you list the noble gases please``, with no comma: where it can be no verb, and no word."""
    if len(texts) <= _SHORTEST or texts[-1] not in ("please", "pls", "plz") or texts[-2] in _NO_NOUN:
        return False
    asked = texts[2:] if texts[0] in _ASKS_YOU and texts[1] == "you" else texts
    return asked[0] in lexicon.IMPERATIVES and not any(
        text in lexicon.WH_WORDS or text == "," for text in asked
    )


def _trim(tokens: list[Token]) -> list[Token]:
    start = 0
    while start < len(tokens) and tokens[start].text == ",":
        start += 1
    end = len(tokens)
    while end > start and tokens[end - 1].text == ",":
        end -= 1
    return tokens[start:end]

"""Greetings, politeness and small talk around a question: what says nothing about what is asked."""

from typing import Final

from . import lexicon
from .tokens import Token
from .wordlists import words


def _phrases(rows: str) -> tuple[tuple[str, ...], ...]:
    """Longest first."""
    phrases = {tuple(row.split()) for row in rows.strip().splitlines()}
    return tuple(sorted(phrases, key=len, reverse=True))


_LEADING: Final = _phrases("""
hi
hi there
hello
hello there
hey
hey there
howdy
yo
greetings
good morning
good afternoon
good evening
good day
dear assistant
dear all
dear sir or madam
hi everyone
hello everyone
hi all
hi friend
hey friend
hi again
hello again
hiya
heya
good day to you
hope you are well
i hope you are well
i hope you are doing well
hope you are doing well
how are you
nice to meet you
i have question
i have quick question
i have question for you
i have question about this
i have got question
i would like to ask
i would like to ask you
i want to ask
i want to ask you
i wanted to ask
may i ask
may i ask you
can i ask
can i ask you
can i ask you something
could i ask
could i ask you
let me ask you
let me ask
next question
another question
last question
small question
short question
one more question
one more thing
question for you
i need your help
i need help
i need some help
help
sorry for question
sorry for asking
apologies for bothering you
pardon me
forgive me
by way
btw
also
right
anyway
alright
all right
be so kind as to
be so kind and
do me favor and
do me favour and
if possible
if you can
if you do not mind
if you would not mind
if it is not too much trouble
when you have moment
when you get chance
when you have time
please
pls
plz
kindly
ok
okay
so
well
um
quick question
question
simple question
one question
sorry to bother you
excuse me
sorry
thanks
thank you
bonjour
bonsoir
salut
coucou
s'il vous plaît
s'il te plaît
hola
buenas
buenos días
buenos dias
buenas tardes
buenas noches
por favor
hallo
guten tag
guten morgen
guten abend
moin
servus
grüezi
bitte
ciao
buongiorno
buonasera
salve
per favore
olá
oi
bom dia
boa tarde
hej
hoi
""")
_TRAILING: Final = _phrases("""
please
pls
plz
kindly
thanks
thank you
thx
cheers
many thanks
thanks lot
thank you very much
thanks in advance
thank you in advance
if you would be so kind
if you do not mind
if you can
if possible
if you would not mind
if that is ok
if that is okay
if you have moment
if you have time
if it is not too much trouble
when you have moment
when you get chance
when you have time
thanks very much
thanks so much
thank you so much
thank you kindly
thanks again
thanks for help
thanks for your help
thank you for your help
thank you for your time
thanks for your time
thanks for any help
thanks bunch
thanks ahead
ty
tysm
tia
much appreciated
would be much appreciated
any help is appreciated
any help would be appreciated
i appreciate it
i appreciate your help
i would appreciate it
have nice day
have good day
have great day
best regards
kind regards
regards
sorry for bothering you
sorry for asking
just curious
just wondering
i am curious
asking for friend
por favor
gracias
muchas gracias
bitte
danke
danke schön
vielen dank
danke im voraus
vielen dank im voraus
merci
merci beaucoup
merci d'avance
s'il vous plaît
s'il te plaît
per favore
grazie
obrigado
obrigada
""")
_SMALL_TALK: Final = words(
    """
    i am is was have been just quick question questions about this that it but so and my we maybe may be
    stupid silly dumb probably simple random basic out of curiosity curious wondering wondered wonder keep
    forgetting forget bugging me all day for pub quiz googled google searched found nothing useful looked
    everywhere could tried asking asked sorry to bother you bothering hope well doing one thing here
    something there quickly know like would figure talking friend colleague friends they do
    """
)
_TOLD: Final = _SMALL_TALK | words(
    """
    were has had being these its or myself us our your them somebody someone everybody anyone nobody might
    can will does did done get got getting dull odd weird strange funny naive from in on at a an the with by
    as some any keeps kept forgot nagging puzzling puzzled confused confusing driving crazy mad nuts week
    weekend night morning today yesterday tonight lately recently earlier now again always ever never trivia
    crossword puzzle bet debate argument discussion dinner lunch party homework assignment essay project
    presentation report blog article work googling searching search find helpful clear answer answers
    looking look online internet web trying try ask asks knew talked talk talks chatting discussing
    discussed arguing argued colleagues coworker boss teacher roommate neighbor classmate family reading
    read heard saw seen came across tv news podcast documentary movie film book mind remember recall not
    think thinking thought believe guess suppose understand sure interested interesting long time ages while
    really very much bit little more too up down over into let see want wanted need needed help says say said
    insists claims he his she her preparing prepare writing
    """
)
_MAX_SMALL_TALK: Final = 16
_NEEDED: Final = words(
    """
    curious curiosity wondering wondered wonder question questions bugging bothering nagging forgetting
    forget forgot remember recall googled googling searched searching quiz trivia crossword asking asked bet
    debate argument discussing discussed arguing argued puzzled crazy interested homework assignment essay
    insists claims looked
    """
)
"""One of these makes a clause of such words small talk: it tells why somebody asks."""

_REFERRING: Final = words(
    """
    i me my mine we us our ours it its this that these those he him his she her they them their there then so
    one
    """
)
"""A question with one of these may hang on what was told before: ``I forgot my homework, what do I do?``"""

_DETERMINERS: Final = words("my our a an the some any quick random")
_TOPICLESS: Final = words(
    """
    this that it something friend pub quiz trivia crossword puzzle homework assignment essay project
    presentation report blog article fun curiosity long ages while time days weeks hours you internet web tv
    google you all
    """
)
"""What may follow ``about`` or ``for`` in a clause that only tells why somebody asks."""

_COURTEOUS: Final = frozenset({"please", "pls", "plz", "kindly", "actually"})
"""Dropped wherever they stand; ``exactly`` only behind a question word: exactly 3 is not 3."""

_BEGINNINGS: Final = lexicon.WH_WORDS | lexicon.AUXILIARIES | lexicon.IMPERATIVES | lexicon.FOREIGN | {","}
_PLEASE: Final = frozenset({("please",), ("pls",), ("plz",), ("bitte",), ("por", "favor")})
_THANKS: Final = frozenset({("thanks",), ("thank", "you"), ("thx",), ("danke",), ("merci",), ("gracias",)})
_HOLDS_ON: Final = lexicon.CLAUSE_OPENERS | {"of", "and", "or", "is", "say", "best", "kind", "my"}


_MAX_COURTESIES: Final = 6


def without_courtesy(tokens: list[Token]) -> list[Token]:
    """Articles are gone already."""
    if any(token.text in lexicon.WORD_TALK for token in tokens):
        return _without_start(tokens)
    found: list[Token] = []
    for token in tokens:
        before = found[-1].text if found else ","
        is_filler = token.text == "exactly" and before in lexicon.WH_WORDS
        is_manner = token.text == "kindly" and before not in ("you", ",")
        if (token.text not in _COURTEOUS or is_manner) and not is_filler:
            found.append(token)
    for _ in range(_MAX_COURTESIES):
        shorter = _without_end(_without_start(found))
        if len(shorter) == len(found):
            break
        found = shorter
    return found


def _without_start(tokens: list[Token]) -> list[Token]:
    texts = [token.text for token in tokens]
    for phrase in _LEADING:
        # "Hello, what is ..." greets; "Hello world in Python" does not.
        rest = texts[len(phrase) :]
        if tuple(texts[: len(phrase)]) == phrase and len(rest) > 1 and rest[0] in _BEGINNINGS:
            return _trim(tokens[len(phrase) :])
    return _without_told(_trim(tokens))


def _without_told(tokens: list[Token]) -> list[Token]:
    """Without a first clause that only tells why somebody asks."""
    texts = [token.text for token in tokens]
    clause = texts.index(",") if "," in texts else 0
    told = set(texts[:clause])
    if _names_a_topic(texts[:clause]):
        return tokens
    if not 0 < clause <= _MAX_SMALL_TALK or not told & _NEEDED:
        return tokens
    if "never" in told and "i" not in texts[: texts.index("never")]:  # I can never remember, ...
        return tokens
    after = _trim(tokens[clause:])
    if after and after[0].text == "but":
        after = after[1:]
    asks_first = texts[0] in (lexicon.WH_WORDS | lexicon.AUXILIARIES | lexicon.IMPERATIVES)
    stands_alone = len(after) > 3 and not {token.text for token in after} & _REFERRING
    if told <= _SMALL_TALK or (told <= _TOLD and stands_alone and not asks_first):
        return after
    return tokens


def _names_a_topic(clause: list[str]) -> bool:
    """``asking for my boss``, ``about yesterday``: it says of whom or of when is asked."""
    for place, word in enumerate(clause):
        if word in ("about", "for", "on", "of", "regarding"):
            rest = [other for other in clause[place + 1 :] if other not in _DETERMINERS]
            if rest and rest[0] not in _TOPICLESS:
                return True
    return False


def _without_end(tokens: list[Token]) -> list[Token]:
    texts = [token.text for token in tokens]
    for phrase in _TRAILING:
        size = len(phrase)
        if tuple(texts[-size:]) != phrase or len(texts) <= size + 1:
            continue
        before = texts[-size - 1]
        # "..., kind regards" takes leave; "with kind regards" is what is asked about.
        if before == "," or phrase in _PLEASE or (phrase in _THANKS and before not in _HOLDS_ON):
            return _trim(tokens[:-size])
    return tokens


def _trim(tokens: list[Token]) -> list[Token]:
    start = 0
    while start < len(tokens) and tokens[start].text == ",":
        start += 1
    end = len(tokens)
    while end > start and tokens[end - 1].text == ",":
        end -= 1
    return tokens[start:end]

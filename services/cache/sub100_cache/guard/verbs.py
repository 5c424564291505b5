"""Forms of English verbs, as far as closed lists and plain rules tell them."""

import re
from typing import Final

_IRREGULAR: Final = """
be was been; begin began begun; bite bit bitten; break broke broken; bring brought brought; build built built;
buy bought bought; catch caught caught; choose chose chosen; come came come; cut cut cut; deal dealt dealt;
do did done; draw drew drawn; drink drank drunk; drive drove driven; eat ate eaten; fall fell fallen;
feed fed fed; feel felt felt; fight fought fought; find found found; fly flew flown; forget forgot forgotten;
freeze froze frozen; get got gotten; give gave given; go went gone; grow grew grown; hang hung hung;
have had had; hear heard heard; hide hid hidden; hit hit hit; hold held held; keep kept kept; know knew known;
lay laid laid; lead led led; leave left left; lend lent lent; lose lost lost; make made made;
mean meant meant; meet met met;
pay paid paid; put put put; read read read; ride rode ridden; ring rang rung; rise rose risen;
run ran run; say said said; see saw seen; sell sold sold; send sent sent; set set set; shake shook shaken;
shoot shot shot; shut shut shut; sing sang sung; sink sank sunk; sit sat sat; sleep slept slept;
speak spoke spoken; spend spent spent; stand stood stood; steal stole stolen; swim swam swum; take took taken;
teach taught taught; tear tore torn; tell told told; think thought thought; throw threw thrown;
understand understood understood; wake woke woken; wear wore worn; win won won; write wrote written
"""

_FORMS: Final = [row.split() for row in _IRREGULAR.replace("\n", " ").split(";")]
_PAST: Final = {past: base for base, past, _ in _FORMS}
_PARTICIPLE: Final = {participle: base for base, _, participle in _FORMS}
_DOUBLED: Final = frozenset("bdgmnprtl")
_SHORT: Final = re.compile("(?:[^aeiou]+|qu)[aeiou][bdgklmnprtv]")
"""One syllable with a short vowel."""


def is_third_person(base: str, form: str) -> bool:
    """``form`` is what ``base`` becomes after he, she or it."""
    if base.endswith("y") and base[-2:-1] not in "aeiou":
        return form == f"{base[:-1]}ies"
    if base.endswith(("s", "x", "z", "ch", "sh", "o")):
        return form == f"{base}es"
    return form == f"{base}s"


def is_past(base: str, form: str) -> bool:
    return _PAST.get(form) == base if form in _PAST else is_regular_past(base, form)


def is_participle(base: str, form: str) -> bool:
    return _PARTICIPLE.get(form) == base if form in _PARTICIPLE else is_regular_past(base, form)


def stands_for(participle: str, form: str) -> bool:
    """``form`` is the base, or the past, of the verb of ``participle``; of a gerund the base."""
    if is_participle(form, participle) or is_gerund(form, participle):
        return True
    return participle in _PARTICIPLE and _PAST.get(form) == _PARTICIPLE[participle]


def is_gerund(base: str, form: str) -> bool:
    if len(base) < 3 or not form.endswith("ing"):
        return base in ("do", "go") and form == f"{base}ing"
    if base.endswith("ie"):
        return form == f"{base[:-2]}ying"
    if base.endswith("e") and not base.endswith(("ee", "oe", "ye")):
        return form == f"{base[:-1]}ing"
    return _is_joined(base, "ing", form)


def may_be_participle(form: str) -> bool:
    return form in _PARTICIPLE or (form.endswith("ed") and len(form) > 4)


def is_regular_past(base: str, form: str) -> bool:
    if len(base) < 3 or not form.endswith("ed"):
        return False
    if base.endswith("e"):
        return form == f"{base}d"
    if base.endswith("y") and base[-2] not in "aeiou":
        return form == f"{base[:-1]}ied"
    return _is_joined(base, "ed", form)


def _is_joined(base: str, ending: str, form: str) -> bool:
    """``tap`` doubles its consonant, for ``taped`` is of ``tape``; ``visit`` does not, ``travel`` may."""
    doubled = f"{base}{base[-1]}{ending}"
    if _SHORT.fullmatch(base):
        return form == doubled
    return form == f"{base}{ending}" or (base[-1] in _DOUBLED and form == doubled)


def is_plural(singular: str, form: str) -> bool:
    if len(singular) < 3:
        return False
    if singular.endswith("fe"):
        return form == f"{singular[:-2]}ves"
    if singular.endswith("y") and singular[-2] not in "aeiou":
        return form == f"{singular[:-1]}ies"
    if singular.endswith(("s", "x", "z", "ch", "sh")):
        return form == f"{singular}es"
    if singular.endswith("o"):
        return form in (f"{singular}es", f"{singular}s")
    return form == f"{singular}s"

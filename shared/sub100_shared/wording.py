"""Whether a text's wording is itself what is worked on: then two ways to say one thing are two inputs.

``Translate the user's text`` makes another answer of each paraphrase, and so does ``how many
letters has``.
The lists are closed, but err on the side of too many: what they name is answered where it is equal letter
for letter, or not at all. ``stem-`` is any word that begins so; scripts without spaces are
searched whole.
"""

import re
from typing import Final

from .nfc import nfc


def _listed(rows: str) -> list[str]:
    return rows.split()


_TASKS: Final = _listed("""
translat- transliterat- proofread- proof-read- rewrit- re-writ- rewrote rephras- paraphras- reword- abridg-
recit- verbatim misspel- uppercas- lowercas- word-for-word
übersetz- dolmetsch- korrigier- korrektur- lektorier- umformulier- umschreib- klassifizier- kategorisier-
einordnen zusammenfass- zusammengefasst fasse fass wiederhol- zähl- gezählt buchstab- wörter sätze reim-
rechtschreib- grammatik kürze
traduc- traduis- traduir- traduit- traduz- corrig- relis relire réécri- reformul- classez classer
classifie-
catégori- résum- répèt- répét- compte comptez épel- lettres mots phrase phrases orthograph- grammair-
correg- corrij- reescrib- reescrev- clasific- resumen resumir resúm- repit- repet- cuenta cuántas contar
deletre- letras palabras palavras frase frases ortograf- gramátic-
corrett- correggi riscriv- riassum- ripet- parole lettere vertaal vertalen samenvat- herhaal
översätt- oversæt-
""")

_ASKED_ABOUT: Final = _listed("""
interpret interprets interpreted transcri- correct- revise revised edit edits edited editing classif-
categor- label- summar- condense condensed shorten- shorter repeat- repetition echo echoes
count counts counted counting spell- pronounc- rhym- anagram- palindrom- capitali- reverse reversed
encod- decod- encrypt- decrypt- hash hashes tokeni- token tokens parse parsed parses extract-
sentiment- grammar grammatical- punctuat- typo typos synonym- antonym- syllab- acronym- abbreviat-
alphabet- letters characters words sentence sentences paragraph- vowel- consonant- haiku
""")
"""Tasks where they are set, but not where somebody asks how they are done, or what they are."""

_ANYWHERE: Final = _listed("""
翻译 翻譯 翻訳 译成 譯成 改写 改寫 润色 潤色 校对 校對 纠正 糾正 分类 分類 归类 总结 總結 概括 摘要 要約
重复 重複 复述 字数 字數 几个字 幾個字 单词 句子 訳し 言い換え 校正 添削 繰り返 数え 文字数 번역 요약 교정
반복 분류 바꿔 ترجم لخص صحح صنف كرر перевед перевод переведи исправ перефраз перепиш классифи повтор резюм
अनुवाद संक्षेप दोहरा
""")

_ON_SCOPES: Final = _listed("""
text texts input inputs message messages word character letter line lines complet- continu- improv- polish
check- analy- tags tagging mark format- style tone convert- replac- fix detect- identify language-
respond-with
reply-with rate score sort split cite quote
eingabe- nachricht- verbesser- ergänz- sprache texte textes entrée améliore- texto mensaje entrada
mejora- testo
messaggio
""")
"""What a system prompt hardly names unless the user's words are its material."""

_ANYWHERE_ON_SCOPES: Final = _listed("""
文本 文字 输入 入力 テキスト 消息 텍스트 النص текст
""")


_OPENING: Final = re.compile(
    r"(?:(?:hi|hello|hey|please|pls|so)[,!.]? )*(?:in [\w+#.]+(?: \w+){0,2},? )?"
    r"(?:(?:can|could|would) you )?(?:please |pls )?"
    r"(?:tell me |show me |explain |i want to know |i would like to know )?"
    r"(?:how (?:do|can|could|should|would|does|is|are) |how to |whats? |what's |which |why |when |where |who "
    r"|is |are |does |can i |should i |tips |steps |explain |describe )"
)
"""How a question begins that asks about a task and sets none."""

_MARKS: Final = re.compile(
    "[:;\"“”„«»`\n]|(?<!\\w)['\u2019\u2018]|how many (?:\\w+ ){0,2}"
    "(?:letter|character|word|sentence|paragraph|vowel|consonant|syllable|token|line|space)"
)
"""Behind one of these may stand what is worked on."""

_OTHERWISE: Final = re.compile(
    r"\bin (?:one|two|three|four|five|\d+|a|an|a few|simple|plain|other|your own|my own)"
    r" (?:single |short |simple |brief )?(?:words?|sentences?|paragraphs?)\b"
    r"|\bcover letters\b|\b(?:movie|film|fictional|main|cartoon|game) characters\b|\bblood counts?\b"
    r"|\b(?:life|prison|jail|death) sentences?\b|\bcondensed milk\b|\bvanilla extract\b"
)
"""Forms of an answer, and words of another sense."""


def _pattern(listed: list[str], anywhere: list[str]) -> re.Pattern[str]:
    whole = "|".join(re.escape(word) for word in listed if not word.endswith("-"))
    stems = "|".join(re.escape(word[:-1]) for word in listed if word.endswith("-"))
    parts = "|".join(map(re.escape, anywhere))
    return re.compile(rf"(?<![^\W_])(?:{stems}|(?:{whole})(?![^\W_]))|{parts}")


_FIRM: Final = _pattern(_TASKS, _ANYWHERE)
_ANY: Final = _pattern(_TASKS + _ASKED_ABOUT, _ANYWHERE)
_SCOPE: Final = _pattern(_TASKS + _ASKED_ABOUT + _ON_SCOPES, _ANYWHERE + _ANYWHERE_ON_SCOPES)


def works_on_wording(question: str) -> bool:
    """Whether ``question`` itself asks for something to be done with words."""
    text = _plain(question)
    return _ANY.search(text) is not None and (_FIRM.search(text) is not None or not _asks_about(text))


def speaks_of_wording(question: str) -> bool:
    """Whether a task is named at all, as where ``works_on_wording``: each of the words may be what is asked
    about."""
    text = _plain(question)
    if _ANY.search(text) is None:
        return False
    return not _asks_about(text) or _ANY.search(_OTHERWISE.sub(" ", text)) is not None


def may_work_on_wording(instructions: str) -> bool:
    """Whether under ``instructions`` (a system prompt, earlier turns) a question may be material."""
    return _SCOPE.search(_plain(instructions)) is not None


def _asks_about(text: str) -> bool:
    return _OPENING.match(text) is not None and _MARKS.search(text) is None


def _plain(text: str) -> str:
    return nfc(text).casefold()

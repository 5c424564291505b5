"""Closed lists of English words by what they do in a question. A word on none of them is just compared."""

from typing import Final

from .wordlists import words

ARTICLES: Final = frozenset({"a", "an", "the"})

AUXILIARIES: Final = words("is was do did can could will would should must may might have had shall")
WH_WORDS: Final = words("what which who whom whose when where why how")

LETTERED: Final = words(
    """
    vitamin hepatitis type group plan grade option class category section part team influenza blood
    model size note level point exhibit schedule appendix column row series wing side variant factor
    block unit room gate terminal track line form version drive disk method case answer question letter
    """
)
"""After one of these ``a`` is a letter."""

WORD_TALK: Final = words(
    """
    say says said translate translation mean means meaning word words phrase spell pronounce write called
    definition define synonym synonyms etymology english french spanish german italian japanese chinese
    korean portuguese russian latin arabic hindi thai turkish dutch greek polish swedish hebrew vietnamese
    tense past participle conjugate conjugation verb noun adjective adverb preposition conjunction pronoun
    plural singular regular irregular formal informal slang offensive origin term terms speech opposite
    british american americans letter letters syllable syllables rhyme rhymes vowel vowels consonant
    consonants spelled spelt spelling pronounced pronunciation hyphenated alphabetical alphabetically
    """
)
"""Where one of these stands, ``please`` may be what is asked about."""

TITLED: Final = words(
    """
    sang sing sings recorded covered released album albums song songs wrote directed starred plays author
    composer
    """
)
"""Beside one of these may be a title, which is as it is: ``who wrote nine``."""

IMPERATIVES: Final = words(
    """
    write translate summarize explain list give tell show help describe create generate compose suggest
    recommend provide find calculate compute convert solve compare define name rewrite draft teach
    """
)
"""``can you`` before one of them is a request, not a question."""

CLAUSE_OPENERS: Final = words(
    """
    in on at by for with from under during when if after before once while since until because although
    to without inside outside within
    """
)
"""What may stand before a question or behind it, and means the same in both places."""

FOREIGN: Final = words(
    """
    der das den dem des und ist sind ein eine einen einem einer ich wie wer wo wann warum nicht mit für
    auf bei zum zur von vom wenn im um aus nach wird kann darf muss mein meine nenne viele le les des du
    une et est sont où quand pourquoi comment qui que quel quelle quels quelles je il elle nous vous pas
    avec pour dans sur au aux puis peut faut quoi qu c'est dit el la los las del una y es son qué que
    cómo como cuándo cuánto cuántos cuántas dónde donde quién por para con en se mi su puedo debo
    necesito una bastan il lo gli della che di è sono perché quando chi non per con o os um uma não em
    são você het een niet
    """
) - {"die", "an", "in", "me", "do", "no", "so", "to", "as", "he", "on", "it", "per", "dit"}

CASE_MATTERS: Final = words(
    """
    turkey china polish march may august us it who aids apple python java rust go swift excel word
    windows amazon oracle mercury jordan chad jersey bill mark rose will frank grace hope ruby amber
    bush cat pat ram sin cos tan si pip gimp shell target gap subway nice reading bath mobile orange
    lent job mass pole poles dane finish danish swede cancer gemini virgo earth sun moon lima limes java
    basic delta orion access outlook teams slack zoom meet signal discord notion linear chrome edge
    safari opera brave spark flink
    """
)
"""Another word when written with a capital."""

CASE_MATTERS_ABROAD: Final = words("sie ihr ihre ihrem ihren ihrer ihres ihnen weg arm band macht")
"""German: they or you, gone or way."""

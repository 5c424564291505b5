"""Which near questions may share an answer. Each pair also stands the other way round."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sub100_cache.guard import refusal, wording
from sub100_cache.guard.rules import RULES

OTHERS = """
Do I write a or an before hour? | Do I write a or the before hour?
What is vitamin a deficiency? | What is vitamin deficiency?
What is 10²? | What is 102?
What is the time? | What is time?
Who created The Office? | Who created Office?
What is a man-eating shark? | What is a man eating shark?
What can I do in Paris in an hour? | What can I do in Paris in hours?
How do I roast a turkey? | How do I roast Turkey?
What does WHO stand for? | What does who stand for?
What is US law? | What is us law?
How do I contact you? | How do you contact me?
How do I delete my account? | How do you delete my account?
How do I write an app? | How do I write an application?
Well water is safe to drink? | Water is safe to drink?
Is pi exactly 3.14? | Is pi 3.14?
Hello world in Python | world in Python
Is it not safe to drink? | Is it safe to not drink?
Isn't it safe to drink it? | Is it safe to not drink it?
Can't all students swim? | Can all students not swim?
Wie kann ich Ihnen helfen? | Wie kann ich ihnen helfen?
Trinkt er in Maßen? | Trinkt er in Massen?
When do I use few in English? | When do I use a few in English?
How is the kidney filtered by blood? | How does the kidney filter blood?
Let's eat, grandma | Let's eat grandma
Paris is the capital of France? | Paris is the capital of France.
What is 5 - 3? | What is 5 3?
What is 1,000 + 1? | What is 1.000 + 1?
Who is the father of the son? | Who is the son of the father?
What does the operator ?? do in PHP | What does the operator ?: do in PHP
How do I make a glass? | How do I make glass?
Is C++ fast? | Is C fast?
Is C# fast? | Is C fast?
Should I take a pill? | Should I take pills?
Why do cats purr? | Why did cats purr?
What is the number of planets? | What is a number of planets?
How do I get to Paris from Rome? | How do I get from Paris to Rome?
How do I disable it? | How do I enable it?
Explain how the heart works | Explain why the heart works
Is it legal? | Is it illegal?
How do I treat casual effects? | How do I treat causal effects?
What is the capital of Slovenia? | What is the capital of Slovakia?
Is a hot dog a dog? | Is a dog a hot dog?
What would happen if I stop? | What happened if I stop?
Did the dog bite the man? | Did the man bite the dog?
When I eat, should I drink? | When I drink, should I eat?
Which days except Monday? | Which days including Monday?
print("a") in Python | print('a') in Python
Is 5 kg enough? | Is 5 lb enough?
Is 5 mg enough? | Is 5 g enough?
Who saw Mary? | Who did Mary see?
Can I bring a friend? | Can I bring friends?
How do you say please in Thai? | How do you say thanks in Thai?
Translate: thank you | Translate: please
What is the matter with light? | What is matter with light?
How do I have a rest? | How do I have the rest?
Can a man live on water? | Can man live on water?
"""

SAME = """
How do I reset my password? | how can i reset my password
Could you please tell me where the Louvre is? | Where is the Louvre?
Explain how a suspension bridge works. | How does a suspension bridge work?
Hi! What's the capital of France? Thanks | what is the capital of france
Why does a volcano erupt? | Why do volcanoes erupt?
What is the population of Japan? | What's Japan's population?
What is the price of a stamp? | How much does a stamp cost?
In Excel, how do I freeze the top row? | How do I freeze the top row in Excel?
How is blood filtered by the kidney? | How does the kidney filter blood?
How should fresh basil be stored? | How should I store fresh basil?
Is glass not a liquid? | Isn't glass a liquid?
What does entropy mean? | Define entropy
How come ice floats on water? | Why does ice float on water?
What is 20% of 50? | What is 20 percent of 50?
Name three rivers in Portugal | name 3 rivers in portugal
Who is the author of Hamlet? | Who wrote Hamlet?
Is grey hair hereditary? | Is gray hair hereditary?
Where can I purchase stamps? | Where can I buy stamps?
Bonjour, comment enlever une tache d'encre ? | comment enlever une tache d'encre
"""


def pairs(rows: str) -> list[tuple[str, str]]:
    return [
        (one.strip(), other.strip())
        for one, _, other in (row.partition("|") for row in rows.strip().splitlines())
    ]


@pytest.mark.parametrize(("one", "other"), pairs(OTHERS))
def test_guard_refuses_questions_that_ask_something_else(one: str, other: str) -> None:
    assert refusal(one, other) in RULES
    assert refusal(other, one) in RULES


@pytest.mark.parametrize(("one", "other"), pairs(SAME))
def test_guard_lets_pass_what_asks_the_same(one: str, other: str) -> None:
    assert refusal(one, other) == ""
    assert refusal(other, one) == ""


@pytest.mark.parametrize(
    ("one", "other", "rule"),
    [
        ("Is it safe?", "Is it not safe?", "negation"),
        ("How long are 3 miles?", "How long are 4 miles?", "number"),
        ("All but red", "All except red", "scope"),
        ("Did the dog bite the man?", "Did the man bite the dog?", "order"),
        ("Why do I sneeze?", "When do I sneeze?", "question"),
        ("Should I go?", "Must I go?", "modality"),
        ("Did Anna win?", "Did Berta win?", "name"),
        ("a < b", "a > b", "code"),
        ("x" * 3000, "y", "length"),
        ("?!", "!", "empty"),
    ],
)
def test_guard_names_the_rule_that_refused(one: str, other: str, rule: str) -> None:
    assert refusal(one, other) == rule


QUESTIONS = [one for one, _ in pairs(OTHERS + SAME)]
STRANGERS = ["umbrella", "Zanzibar", "17", "never", "only", "worst", "unless", "kilowatt", "cos", "enable"]


@settings(deadline=None, max_examples=400)
@given(st.sampled_from(QUESTIONS), st.sampled_from(STRANGERS), st.integers(0, 30))
def test_guard_refuses_one_word_more(question: str, stranger: str, place: int) -> None:
    words = question.split()
    place = min(place, len(words))

    assert refusal(question, " ".join([*words[:place], stranger, *words[place:]]))


@settings(deadline=None, max_examples=400)
@given(st.sampled_from(QUESTIONS), st.sampled_from(STRANGERS), st.integers(0, 30))
def test_guard_refuses_another_word(question: str, stranger: str, place: int) -> None:
    words = question.split()
    place = min(place, len(words) - 1)

    assert refusal(question, " ".join([*words[:place], stranger, *words[place + 1 :]]))


@settings(deadline=None, max_examples=300)
@given(st.text(max_size=60), st.text(max_size=60))
def test_guard_is_symmetric_and_never_raises(one: str, other: str) -> None:
    assert bool(refusal(one, other)) == bool(refusal(other, one))
    assert refusal(one, one) in ("", "empty")
    assert isinstance(wording(one), str)


def test_guard_keeps_all_of_these_apart() -> None:
    questions = [
        f"{start} {verb} the {thing} {relation} {noun}?"
        for start, verb, thing, relation, noun in itertools.product(
            ("Can I", "Should I", "Must I"),
            ("open", "close"),
            ("gate", "gates"),
            ("before", "after"),
            ("noon", "dawn"),
        )
    ]

    for one, other in itertools.combinations(questions, 2):
        assert refusal(one, other)


def test_wording_is_the_question_without_its_courtesies() -> None:
    assert wording("Hi! Could you please tell me where the Louvre is? Thanks") == "where the louvre is"
    assert wording("print( 1 )  # please") == "print( 1 ) # please"

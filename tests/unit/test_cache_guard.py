"""Which near questions may share an answer. Each pair also stands the other way round."""

import itertools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sub100_cache import guard
from sub100_cache.guard.rules import RULES


def refusal(asked: str, stored: str) -> str:
    return guard.refusal(guard.read(asked), guard.read(stored))


def wording(question: str) -> str:
    return guard.read(question).wording


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
I forgot my homework, what do I do? | I forgot my presentation, what do I do?
I forgot my homework, can I be expelled? | I forgot my essay, can I be expelled?
My boss asked me for a report, is it due today? | Is it due today?
How do I end a letter with kind regards? | How do I end a letter with best regards?
How do I end a letter with thanks? | How do I end a letter with?
I had an argument with my boss, should I quit | I had a debate with my teacher, should I quit
Is garbage collection free? | Is trash collection free?
When is the next holiday? | When is the next vacation?
What is the gift? | What is the present?
What is ram? | What is random access memory?
Did he forget, is it safe to swim there | Is it safe to swim there
I asked about rabbits, how long do they live? | how long do they live?
Who was followed by Rome? | Who followed Rome?
By which king was the queen killed? | Which queen killed the king?
By which king was the queen killed? | The king was killed by which queen?
Hamlet was written for who? | Who wrote Hamlet?
Hamlet was written by who? | Who writes Hamlet?
When was London founded by the Romans? | When did London found the Romans?
Why is Bob hated by Tom? | Why does Bob hate Tom?
Why was Bob hated by Tom? | Why does Tom hate Bob?
Can dogs be eaten by cats? | Can I eat dogs by cats?
Can I be frozen? | Can I freeze?
Can you be trained? | Can I train you?
Can he be sued? | Can I sue he?
Can tenants be evicted in winter? | Can tenants evict in winter?
How should dogs be trained? | How should dogs train?
What is the war between Rome and Carthage? | What is the war between Carthage and Rome?
What is the flight time between A and B? | What is the flight time between B and A?
How is a cat different from a dog? | How is a cat similar to a dog?
Translate cat to French | Translate cat from French
Translate "I speak French" to German | Translate "I speak German" to French
What is the cat in French? | Translate cat to French
How do I say no in French? | How do I say yes in French?
Convert 5 miles to km | Convert 5 km to miles
How many miles are 5 km? | How many km are 5 miles?
Tell me a joke | What is a joke?
Give me the list of kings | List the kings
Name the king | What is the name of the king?
Do you know if the store is open? | Is the store not open?
Tell me if cats like milk | Tell me if milk likes cats
Tell me if it rains tomorrow | Tell me when it rains tomorrow
I wonder if he can swim | Could he swim?
Is it impossible to freeze milk? | Is it possible to freeze milk?
Is it okay to lie? | Can I lie?
In which year did Rome fall? | In which year did Rome rise?
After dinner what do I eat before bed? | Before bed what do I eat after dinner?
If I eat when do I sleep | When do I eat if I sleep
Suggest a good book | Suggest a bad book
What is good? | What is a good?
What is a good book? | What is the good book?
Best way to cook rice | Best way to eat rice
Is an infant safe? | Is a child safe?
What are the benefits of tea? | What are the drawbacks of tea?
Is tea fully safe? | Is tea safe?
Is tea cheap? | Is tea expensive?
When do I use her, after I met him? | When do I use him, after I met her?
Who, in Rome, rules? | Who rules in Rome?
No, in Rome it is hot | No in Rome it is hot
How long does 1 GB take at 12 MB/s? | How long does 1 GB take at 12 Mb/s?
How long does 1 GB take at 12MB/s? | How long does 1 GB take at 12Mb/s?
How many MB are in a Mb? | How many Mb are in a MB?
Is a 5 mW laser safe? | Is a 5 MW laser safe?
Is a 5 mw laser safe? | Is a 5 MW laser safe?
Is 5 G enough? | Is 5 g enough?
Is 16 Gb enough? | Is 16 GB enough?
Is 300 K hot? | Is 300 k hot?
Is 5 ms long? | Is 5 Ms long?
What is the density of Co? | What is the density of CO?
How do I pick a lock? | How do I choose a lock?
How do I develop a film at home? | How do I develop a movie at home?
Which film is best for my camera? | Which movie is best for my camera?
How much is a dose of ibuprofen? | What is the price of a dose of ibuprofen?
How much is a cup of flour? | What is the cost of a cup of flour?
How many calories are in a pumpkin? | How many calories are in pumpkin?
How much protein is in an egg? | How much protein is in egg?
Question about yesterday, what was the closing price of gold? | What was the closing price of gold?
Asking for my boss, what is a good gift? | What is a good gift?
Wondering about dinner, what should vegetarians eat? | What should vegetarians eat?
Quick question, how long do rabbits live? | Quick never question, how long do rabbits live?
How do I kindly reject an offer? | How do I reject an offer?
What is OCT? | What is October?
What is AIM in chat? | What is purpose in chat?
What is the ICE policy? | What is the ice policy?
How does a PET scan work? | How does a pet scan work?
How do I treat it with RICE? | How do I treat it with rice?
Is ME a disease? | Is me a disease?
Who LED the team? | Who led the team?
What does a NOT gate do? | What does a not gate do?
Which sheep is sick? | Which sheep are sick?
What is a short story? | What is a short storey?
What are the benefits of Medicare? | What are the advantages of Medicare?
When is the best time to run a mile? | What is the best time to run a mile?
How would I feel after surgery? | How to feel after surgery?
What is a hard drive? | What is a difficult drive?
What are the aims of Big Tech? | What are the aims of large tech?
How many MS are there? | How many ms are there?
What is 10 to the 5? | What is 10 to 5?
Is Turkey open? | Is turkey open?
How do I get a Visa? | How do I get a visa?
Will Smith be there? | Will smith be there?
Who played Father Brown? | Who played father brown?
Can you write a will by hand? | Write a will by hand
Could you find gold in rivers? | Find gold in rivers
Can cats be scared? | Can I scare cats?
How can dogs be scared? | How can I scare dogs?
How do I give a speech? | How do I speak?
How do I lose a pound? | How do I lose pounds?
Why do I have a headache? | Why do I have headaches?
Can milk be frozen? | Can I freeze milk?
Can tenants be evicted in winter? | Can I evict tenants in winter?
How should dogs be trained to bite? | How should I train dogs to bite?
Translate cat to French | How do you say cat in French?
Is it possible to freeze milk? | Can I freeze milk?
Is it possible to be happy? | Can I be happy?
Who is ill? | Who is sick?
Is it hard? | Is it difficult?
Explain the aim of the law | Explain the purpose of the law
How big is 16 gb? | how big is 16 GB
Is 5 KG heavy? | Is 5 kg heavy?
Is a 5K run hard? | Is a 5k run hard?
How do I get a visa | how do i get a Visa
Which film should I watch? | Which movie should I watch?
what is a smart car | What is a Smart car?
is a mustang fast | Is a Mustang fast?
who is in the commons | Who is in the Commons?
How does one die? | How do I die?
How should a witness be prepared? | How should I prepare a witness?
What would happen if he loses? | What happens if he loses?
What will happen in 2030? | What happens in 2030?
What is a cause of cancer? | What is the cause of cancer?
Explain what he said | What did he say?
Sorry, which singer made it? | Hello, which singer made it?
Please was sung by whom? | Sorry was sung by whom?
Which is nicer, thanks, please? | Which is nicer, danke, bitte?
Is colour British English? | Is color British English?
What does purchase mean? | What does buy mean?
Is 5 pounds a lot? | Is 5 lbs a lot?
What is a pain in the foot? | What is a pain in the feet?
What is x-y? | What is x y?
Was sind 1,000 km? | Was sind 1000 km?
Translate: my colour | Translate: my color
How should I punish children? | How should children be punished?
How is Taiwan regarded? | How do you regard Taiwan?
Can my phone be tracked when it is off? | Can I track my phone when it is off?
What is the minuet? | What is the minute?
What do you mean? | Define you
How do I cut a corner? | How do I cut corners?
Which should I do? | What should I do?
Recommend a good film | What is a good film?
Where is Sacsayhuaman? | where is sacsayhuaman?
Could you kindly explain entropy? | Explain entropy
What is the price of a stamp? | How much does a stamp cost?
How is blood filtered by the kidney? | How does the kidney filter blood?
How should fresh basil be stored? | How should I store fresh basil?
What does entropy mean? | Define entropy
Where can I purchase stamps? | Where can I buy stamps?
Why is Bob hated by Tom? | Why does Tom hate Bob?
Price of gold | What is the cost of gold?
How much is a haircut? | What is the price of a haircut?
"""

SAME = """
How do I reset my password? | how can i reset my password
Could you please tell me where the Louvre is? | Where is the Louvre?
Explain how a suspension bridge works. | How does a suspension bridge work?
Hi! What's the capital of France? Thanks | what is the capital of france
Why does a volcano erupt? | Why do volcanoes erupt?
What is the population of Japan? | What's Japan's population?
In Excel, how do I freeze the top row? | How do I freeze the top row in Excel?
Is glass not a liquid? | Isn't glass a liquid?
How come ice floats on water? | Why does ice float on water?
What is 20% of 50? | What is 20 percent of 50?
Name three rivers in Portugal | name 3 rivers in portugal
Who is the author of Hamlet? | Who wrote Hamlet?
Bonjour, comment enlever une tache d'encre ? | comment enlever une tache d'encre
Quick question, how long do rabbits live? | How long do rabbits live?
Hello, how are you? | how are you?
Rome was followed by who? | Who followed Rome?
By who was Rome followed? | Who followed Rome?
Hamlet was written by who? | Who wrote Hamlet?
When was London founded by the Romans? | When did the Romans found London?
What is the difference between a cat and a dog? | What is the difference between a dog and a cat?
What is the distance between Rome and Paris? | What is the distance between Paris and Rome?
How is a cat different from a dog? | How does a dog differ from a cat?
Convert 5 miles to km | What is 5 miles in km?
How many km is 5 miles? | Convert 5 miles to km
Tell me the capital of France | What is the capital of France?
Do you know if the store is open? | Is the store open?
Do you know if cats like milk? | Do cats like milk?
I wonder if he can swim | Can he swim?
Is it okay to lie? | Is it fine to lie?
In Excel how do I freeze the top row? | How do I freeze the top row in Excel?
How should fresh basil be washed? | How should I wash fresh basil?
what is capital of France | What is the capital of France?
Is it a big river? | is it a big river
Meaning of life | What does life mean?
What are the pros, and cons? | What are the pros and cons?
Is it open at 5 PM? | is it open at 5 pm?
HOW DO I EXPORT MY CONTACTS | How do I export my contacts?
When is the best time to visit Peru? | What is the best time to visit Peru?
Could you write a poem about rain? | Write a poem about rain
Can you find the derivative of x? | Find the derivative of x
Why does a cat purr? | Why do cats purr?
Asking for a friend, how long do rabbits live? | How long do rabbits live?
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
        ("", "", "empty"),
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


@settings(deadline=None, max_examples=400)
@given(st.sampled_from(QUESTIONS), st.sampled_from("()[]{}<>\"'+-*/=^~|&%$#@°€_\n\t²🙂"), st.integers(0, 60))
def test_guard_refuses_one_symbol_more(question: str, symbol: str, place: int) -> None:
    """White space at both ends alone is nothing."""
    place = min(place, len(question) - 1)

    assert place == 0 or refusal(question, question[:place] + symbol + question[place:])


@settings(deadline=None, max_examples=300)
@given(st.text(max_size=60), st.text(max_size=60))
@example("list", "NAME")
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
    assert wording("print( 1 )  # please") == "print( 1 )  # please"

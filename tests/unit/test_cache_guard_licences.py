"""What each licence lets pass, and what somebody would try who wants to break it."""

import pytest

from sub100_cache.guard import read, refusal
from sub100_cache.guard.rules import RULES

SAME = {
    "tasks spoken of": """
In Python, how do I reverse a string? | How do I reverse a string in Python?
pls show me how to reverse a linked list in C++ | show me how to reverse a linked list in C++
How can I edit a video on my phone? | how do i edit a video on my phone
What is the plot of Hamlet in one paragraph? | what is the plot of hamlet in one paragraph
""",
    "names of other languages": """
Name 3 books by Ursula K. Le Guin. | Name three books by Ursula K. Le Guin.
How can I get to São Paulo from Rio? | How do I get to São Paulo from Rio?
How can I help my son with his math? | How do I help my son with his maths?
""",
    "two in either order": """
Which is better, Python or Java? | Is Java or Python better?
Which is cheaper for travel, a train or a bus? | Is a bus or a train cheaper for travel?
Are jam and jelly the same? | Are jelly and jam the same?
Is jam the same as jelly? | Is jelly the same as jam?
How do cats and dogs differ? | What is the difference between dogs and cats?
What is the distance from Oslo to Madrid? | What is the distance between Madrid and Oslo?
How far is the Moon from Earth? | How far is Earth from the Moon?
Can I mix bleach and vinegar? | Can I mix vinegar and bleach?
Can I take ibuprofen and aspirin together? | Can I take aspirin and ibuprofen together?
Compare tea and coffee | Compare coffee with tea
What is the main difference between frogs and toads? | What is the main difference between toads and frogs?
""",
    "particles": """
How do I turn the alarm off? | How do I turn off the alarm?
Can I pay my mortgage off early? | Can I pay off my mortgage early?
how to turn off autocorrect on android | how to turn autocorrect off on android
At what temperature does gold melt? | What temperature does gold melt at?
Through which countries does the Danube flow? | Which countries does the Danube flow through?
""",
    "abbreviations": """
What's the role of the UN in peacekeeping? | What's the role of the United Nations in peacekeeping?
What is the VAT rate for books? | What is the value added tax rate for books?
Does a UTI go away? | Does a urinary tract infection go away?
How do I restart a pod in k8s? | How do I restart a pod in Kubernetes?
""",
    "numbers": """
What is twenty-five percent of 80? | What is 25% of 80?
How long is a hundred meters? | How long is 100 meters?
""",
    "spellings": """
How do I apologise to a neighbour? | How do I apologize to a neighbor?
Is a grey wolf rare? | Is a gray wolf rare?
How do I change a tyre? | How do I change a tire?
""",
}

OTHERS = {
    "tasks spoken of": """
How do I correct he dont know? | How do I correct he don't know?
How do I spell colour? | How do I spell color?
Is this sentence correct, I live in France? | Is this sentence correct, I live in france?
How do you spell co-op? | How do you spell co op?
How do I pronounce Polish? | How do I pronounce polish?
How do I reverse 20? | How do I reverse twenty?
What is the sentiment of no, thanks? | What is the sentiment of no?
Is this sentence correct, they are late? | Is this sentence correct, they're late?
How do I spell thanks? | How do I spell please?
What is a synonym of begin? | What is a synonym of start?
How do I say it in one word? | How do I say it in two words?
How do I repeat hi, please? | How do I repeat hi?
Correct he dont know | Correct he doesn't know
How many letters are in what is this | How many letters are in what's this
""",
    "names of other languages": """
Who is Le Guin? | Who is Guin?
How do I get to São Paulo? | How do I get to Sao Paulo?
Is Café open? | Is café open?
What is die Macht? | What is die macht?
Is La Paz big? | Is Paz big?
What does son mean in Spanish? | What does are mean in Spanish?
Where is El Paso? | Where is the Paso?
How do I say du in German? | How do I say Sie in German?
Is the son in? | Is the sun in?
Who wrote Les Misérables? | Who wrote Les Miserables?
""",
    "two in either order": """
Is Python better than Java? | Is Java better than Python?
Which is better than Python or Java? | Which is better than Java or Python?
Is raw fish or meat safer? | Is raw meat or fish safer?
Is it better to rent or to buy a house? | Is it better to buy or to rent a house, now?
Is tea not the same as coffee? | Is coffee the same as tea?
How does acid differ in water? | How does water differ in acid?
How long is the flight from Oslo to Madrid? | How long is the flight from Madrid to Oslo?
What is the braking distance from 60 to 0 mph? | What is the braking distance from 0 to 60 mph?
How far is Rome ahead of Oslo? | How far is Oslo ahead of Rome?
Can I mix bleach into vinegar? | Can I mix vinegar into bleach?
Can I take ibuprofen and then aspirin together? | Can I take aspirin and then ibuprofen together?
Can I eat fish and drink milk? | Can I drink fish and eat milk?
Smith vs Jones | Jones vs Smith
Translate cat and dog together | Translate dog and cat together
Convert Celsius to Fahrenheit | Convert Fahrenheit to Celsius
Compare France to Spain and Italy | Compare Italy to Spain and France
How far can I drive from Oslo to Rome? | How far can I drive from Rome to Oslo?
Is hot tea or coffee healthier? | Is hot coffee or tea healthier?
""",
    "particles": """
How do I turn on my heel? | How do I turn my heel on it?
Why do dogs turn on owners? | Why do dogs turn owners off?
Why do dogs turn on owners? | Why do dogs turn owners on?
How do I turn the heating on Monday? | How do I turn on the heating Monday?
How do I take the lid off the pot? | How do I take off the lid the pot?
How do I pay the loan off? | How do I pay off in the loan?
How do I turn the sound up? | How do I turn the sound down?
How do I throw the ball up? | How do I throw up?
What does turn the tide off mean? | What does turn off the tide mean?
How do I put the phone on? | How do I put the phone down?
In which city is the car that I left? | Which city is the car that I left in?
From which country does oil go? | To which country does oil go?
How do I write it down? | How do I write down?
""",
    "abbreviations": """
What is a vat? | What is a value added tax?
Who is WHO? | Who is who?
How do I use aids? | How do I use AIDS?
What is ram? | What is random access memory?
Who led the team? | Who LED the team?
What is an atm of pressure? | What is an automated teller machine of pressure?
What is a CBC? | What is a complete blood count?
What is AI in cattle breeding? | What is artificial intelligence in cattle breeding?
Is 60 dB loud? | Is 60 databases loud?
What is a UTI? | What is a urinary infection?
""",
    "numbers": """
Do twenty five-year-olds fit? | Do 25-year-olds fit?
What is half a million? | What is 1,000,000?
What is the sum of a hundred and five? | What is the sum of 100 and 5?
How long is twenty-five? | How long is twenty-six?
Is many a hundred enough? | Is many 100 enough?
What is twenty or five? | What is 25?
What is the hundred? | What is 100?
Why do hundreds go? | Why do 100 go?
Is a half hundred? | Is a half 100?
Who are the twenty-five? | Who is the 25th?
""",
    "spellings": """
who was jane grey | who was jane gray
who wrote grey's anatomy | who wrote gray's anatomy
What is a check? | What is a cheque?
What is a program? | What is a programme?
Is a storey long? | Is a story long?
What is the Labour Party? | What is the labor party?
What is the contour? | What is the contor?
Who prises it? | Who prizes it?
What is a draught? | What is a draft?
What is a kerb? | What is a curb?
""",
}


def rows(licences: dict[str, str]) -> list[tuple[str, str, str]]:
    return [
        (licence, one.strip(), other.strip())
        for licence, lines in licences.items()
        for one, _, other in (row.partition("|") for row in lines.strip().splitlines())
    ]


@pytest.mark.parametrize(("licence", "one", "other"), rows(SAME))
def test_licence_lets_pass_what_it_proves(licence: str, one: str, other: str) -> None:
    assert refusal(read(one), read(other)) == "", licence
    assert refusal(read(other), read(one)) == "", licence


@pytest.mark.parametrize(("licence", "one", "other"), rows(OTHERS))
def test_licence_lets_nothing_pass_that_asks_something_else(licence: str, one: str, other: str) -> None:
    assert refusal(read(one), read(other)) in RULES, licence
    assert refusal(read(other), read(one)) in RULES, licence

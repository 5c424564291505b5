"""What each licence lets pass, and what somebody would try who wants to break it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
""",
    "kinds": """
How do I clean a suede shoe? | How do I clean suede shoes?
Can I freeze a cooked potato? | Can I freeze cooked potatoes?
Is it safe to reheat a mushroom dish? | Is it safe to reheat mushroom dishes?
What is the purpose of a firewall? | What is the purpose of firewalls?
tips for writing a cover letter | tips for writing cover letters
What are the symptoms of the flu? | What are the symptoms of flu?
What are the side effects of ibuprofen? | What are side effects of ibuprofen?
How does the stock market work for a beginner? | How does stock market work for beginner?
how to make a cheesecake at home | how to make cheesecake at home
""",
    "gerunds and anybody": """
Steps for replacing a bike chain | Steps to replace a bike chain
How do I go about replacing a tap? | How do I replace a tap?
tips on growing tomatoes | tips for growing tomatoes
how do you tame a wolf in minecraft | How can I tame a wolf in Minecraft?
What's the way to boil an egg? | How do you boil an egg?
""",
    "ways to ask": """
Any idea why the sky is blue? | Why is the sky blue?
Why is it that ice floats on water? | Why does ice float on water?
Who was it that discovered penicillin? | Who discovered penicillin?
How can I tell whether a melon is ripe? | How do I tell if a melon is ripe?
So, um, how does compound interest actually work? | How does compound interest work?
symptoms of dehydration in dogs | What are the symptoms of dehydration in dogs?
Is it true that lightning strikes twice? | Is it true lightning strikes twice?
Is it normal that my dog snores? | My dog snores, is that normal?
Is tap water safe to drink in Rome? | Is it safe to drink tap water in Rome?
Do I need to peel ginger? | Do I have to peel ginger?
could you list the noble gases please | could you list the noble gases
Thanks in advance: how do I unclog a sink | How do I unclog a sink?
What's Norway's longest river? | What is the longest river in Norway?
What gas is released by plants at night? | What gas do plants release at night?
In which year did Hillary first climb Everest? | In which year was Everest first climbed by Hillary?
By which company was the language first developed? | Which company first developed the language?
""",
    "quotations": """
What does the idiom "break the ice" mean? | Explain the meaning of the idiom "break the ice".
Who is the author of "The Name of the Rose"? | Which author wrote "The Name of the Rose"?
Why don't penguins' feet freeze? | Why do penguins' feet not freeze?
""",
    "notation": """
Which day of the week was July 20, 1969? | Which day of the week was 20 July 1969?
Is the bank open on 3rd of May? | Is the bank open on May 3?
Can I land at 3 pm? | Can I land at 15:00?
Is 9 a.m. too early for a call? | Is 9:00 am too early for a call?
Is bath water at 37 °C fine for a newborn? | Is bath water at 37 degrees Celsius fine for a newborn?
Is €700 enough for a week? | Is 700 euros enough for a week?
What can I cook with 500 g of minced beef? | What can I cook with 500 grams of minced beef?
how many lbs of turkey per guest | how many pounds of turkey per guest
""",
    "measures and requests": """
How much does an elephant weigh? | What is the weight of an elephant?
How long is the Nile? | What is the length of the Nile?
What does NATO stand for? | What is NATO short for?
Write me a poem about rain | Write a poem about rain
List 3 rivers in Portugal | Name three rivers in Portugal
Where do I find the serial number? | Where can I find the serial number?
What is the best method to cook rice? | Best way to cook rice
How much time does it take to fly to Mars? | How long does it take to fly to Mars?
""",
    "abroad": """
¿Me podrías decir, por favor, cuántos huesos tiene el cuerpo humano? | ¿Cuántos huesos tiene el cuerpo humano?
Nenne mir fünf bekannte deutsche Komponisten | Nenne mir 5 bekannte deutsche Komponisten
Quels sont les six pays les plus peuplés ? | Quels sont les 6 pays les plus peuplés ?
Wie geht's mit der Scheidung weiter? | Wie geht es mit der Scheidung weiter?
""",
    "clauses before what is asked": """
When my son refuses to eat, what can I do? | What can I do when my son refuses to eat?
If my hen stops laying eggs, what should I do? | What should I do if my hen stops laying eggs?
After I lose my passport, what do I do? | What do I do after I lose my passport?
When I dream, what happens? | What happens when I dream?
If it rains, can I paint the fence? | Can I paint the fence if it rains?
Once guests have left, how do I clean a sofa? | How do I clean a sofa once guests have left?
If I am pregnant, is it safe to eat sushi? | Is it safe to eat sushi if I am pregnant?
In pandas, how do I rename one column? | How do I rename one column in pandas?
In Linux, what does the tail command do? | What does the tail command do in Linux?
In Excel, what is the shortcut for pasting values? | What is the shortcut for pasting values in Excel?
""",
    "names of two words": """
how do i freeze the top row in google sheets | How do I freeze the top row in Google Sheets?
how big is new york | How big is New York?
where is machu picchu located | Where is Machu Picchu located?
how can i combine two cells in excel | How can I combine two cells in Excel?
does amoxicillin need to be refrigerated | Does Amoxicillin need to be refrigerated?
how do i reconcile a bank statement in quickbooks | How do I reconcile a bank statement in QuickBooks?
""",
    "courtesies": """
Would you be so kind as to explain how vaccines work? | Explain how vaccines work.
I was hoping you could tell me how vaccines work. | How do vaccines work?
Do you mind telling me how vaccines work? | How do vaccines work?
I would be very grateful if you could tell me how vaccines work. | How do vaccines work?
It would be nice if you could tell me how vaccines work. | How do vaccines work?
Can you explain to me how vaccines work? | How do vaccines work?
Could you let me know what the capital of Peru is? | What is the capital of Peru?
Please tell me, what is the capital of Peru? | What is the capital of Peru?
Could you tell me, please, what the capital of Peru is? | What is the capital of Peru?
If you don't mind, could you explain how vaccines work? | Explain how vaccines work.
Explain how vaccines work, if you have a moment. | Explain how vaccines work.
Would you please write a poem about rain? | Write a poem about rain
Please write a poem about rain, thanks | Write a poem about rain
Sorry to bother you, but how do vaccines work? | How do vaccines work?
Hey, so how do vaccines work? | How do vaccines work?
Good evening. Is it safe to eat raw eggs? | Is it safe to eat raw eggs?
Hello! Does aspirin thin the blood? | Does aspirin thin the blood?
hey quick question, how do vaccines work | How do vaccines work?
Hi there, I'd like to know how vaccines work. | How do vaccines work?
""",
    "articles that are missing": """
I have a fever and a headache, what should I take? | I have fever and headache, what should I take?
What is the longest river in France? | What is longest river in France?
Who is the richest man in Europe? | Who is richest man in Europe?
What is the capital of the Netherlands? | What is the capital of Netherlands?
When did the Renaissance begin? | When did Renaissance begin?
How does the nervous system work? | How does nervous system work?
""",
    "words in their place": """
When do babies start teething? | When do babies begin teething?
When did the war begin? | When did the war start?
How do I turn on dark mode in Outlook? | How do I switch on dark mode in Outlook?
How do I switch the alarm off? | How do I turn off the alarm?
What is the biggest lake in Africa? | What is the largest lake in Africa?
Which is the closest planet to the Sun? | Which is the nearest planet to the Sun?
What's the quickest way to cool down wine? | What's the fastest way to cool down wine?
How do I fix a flat bicycle? | How do I repair a flat bicycle?
How do I get rid of a coffee stain? | How do I remove a coffee stain?
Is creatine safe to take every day? | Is creatine safe to take daily?
Where did the battle take place? | Where did the battle happen?
What type of oil does a mower need? | Which kind of oil does a mower need?
List the symptoms of anaemia | What are the symptoms of anaemia?
Is it against the law to sleep in a car? | Is it illegal to sleep in a car?
Is it difficult to learn Greek? | Is it hard to learn Greek?
Explain the difference between a hub and a switch. | What is the difference between a hub and a switch?
""",
    "passives": """
Who was the telephone invented by? | Who invented the telephone?
What was the fire caused by? | What caused the fire?
Who was the Eiffel Tower built by? | Who built the Eiffel Tower?
Was Hamlet written by Shakespeare? | Did Shakespeare write Hamlet?
Was penicillin discovered by Alexander Fleming? | Did Alexander Fleming discover penicillin?
Is oxygen produced by plants? | Do plants produce oxygen?
""",
    "abbreviations beside themselves": """
What is VAT? | What is VAT (value-added tax)?
How do I configure a VPN on an iPhone? | How do I configure a virtual private network (VPN) on an iPhone?
What is a performance improvement plan (PIP)? | What is a performance improvement plan?
Does the DMV (Department of Motor Vehicles) close? | Does the Department of Motor Vehicles close?
""",
    "how long and by whom": """
How does one repot an orchid? | How do you repot an orchid?
I'd like to know how I unclog a bathtub drain. | I would like to know how to unclog a bathtub drain.
Tell me how I can unclog a drain | How can I unclog a drain?
Roth IRA vs SEP IRA: what is the difference? | What is the difference between SEP IRA and Roth IRA?
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
Hello, is this spelled right? | Hi, is this spelled right?
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
Which is safer, raw fish or meat? | Which is safer, meat or raw fish?
Can I eat less meat and fish together? | Can I eat fish and less meat together?
Compare cheap wine and beer | Compare beer and cheap wine
What is the difference between a cat and guide dogs? | What is the difference between a guide and cat dogs?
What's the difference between OLED and QLED TVs? | How do QLED and OLED televisions differ?
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
Why do dogs turn on cats? | Why do dogs turn cats on?
Why do dogs throw up food? | Why do dogs throw food up?
How do cows bring up food? | How do cows bring food up?
How do I take my kids out? | How do I take out my kids?
How do I hold my baby up? | How do I hold up my baby?
how to turn off autocorrect on android | how to turn autocorrect off on android
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
What is PMS? | What is premenstrual syndrome?
What is the STD of this? | What is the sexually transmitted disease of this?
Who was CV? | Who was curriculum vitae?
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
How do I change a tyre? | How do I change a tire?
""",
    "kinds": """
How do I clean a window? | How do I clean Windows?
Can I bring a friend? | Can I bring friends?
How do I make a friend? | How do I make friends?
How do I store a value in Python? | How do I store values in Python?
How do I write a letter? | How do I write letters?
Should I take a pill? | Should I take pills?
How do I raise a child? | How do I raise children?
How do I travel on a budget? | How do I travel on budget?
How do I get there by a car? | How do I get there by car?
How do I keep a house? | How do I keep house?
What is a house? | What is house?
How do I make a glass? | How do I make glass?
How do I get the job? | How do I get a job?
How do I fix the sink? | How do I fix a sink?
How do I roast a turkey? | How do I roast turkey?
Is it safe to eat an egg? | Is it safe to eat eggs?
What are the effects of the treaty? | What are the effects of a treaty?
How is the moon named? | How is a moon named?
How do I spell a cat? | How do I spell cat?
Does the president matter? | Does president matter?
What is the purpose of a custom? | What is the purpose of customs?
How does a hive work? | How do hives work?
How do I wash a hand? | How do I wash hands?
Do I need a visa? | Do I need Visa?
How do I open jar? | How do I open a jar?
how do i install lamp | how do i install a lamp
how do i write a cover letter for a bakery job | how do i write cover letter for bakery job
""",
    "gerunds and anybody": """
instructions for washing machines | instructions to wash machines
tips for sewing machines | tips to sew machines
Steps for taping a wall | Steps to tap a wall
Steps for hoping for a cure | Steps to hop for a cure
What is the process of dying? | How do I die?
How do you clean your rooms? | How do I clean my rooms?
How do you clean the rooms? | How do I clean the rooms?
How do you feel? | How do I feel?
How do you grow so fast? | How do I grow so fast?
How do you store my data? | How do I store my data?
How do you generate text? | How do I generate text?
How does one cook? | How do you cook?
how do you tame a wolf in terraria | How can I tame a wolf in Terraria?
""",
    "ways to ask": """
Do you know how to speak French? | How do I speak French?
Who was it that Mary saw? | Who saw Mary?
What exactly is pi? | What is pi exactly?
Did he actually win? | Did he win?
Should I check whether it rains? | Should I check if it rains?
How do I tell my boss if I am late? | How do I tell my boss whether I am late?
Do I need to register? | Can I register?
What do I have to eat? | What do I need to eat?
Must I register? | Do I have to register?
Is a dog safe to walk at night? | Is it safe to walk a dog at night?
Is water not safe to drink? | Is it safe to not drink water?
What is built by the river? | What does the river build?
What is done by Friday? | What does Friday do?
What was written by Mary? | Who wrote Mary?
Whom does he aim to please? | Whom does he aim to?
Describe how dancers please | Describe how dancers
Tell me what kings say to please | Tell me what kings say to
What is Rembrandt's finest portrait? | What is the finest portrait in Rembrandt?
Is it true that he left? | Is it true?
My dog snores, is that normal? | My dog snores, is that dangerous?
effects of war | causes of war
Is it not worth buying a car? | Is it worth not buying a car?
Is the money worth seeing her? | Is it worth seeing her money?
Is a car worth it? | Is it worth a car?
Can I ask how long rabbits live? | How long do rabbits live?
For a student, is a used laptop worth buying? | Is it worth buying a used laptop for a student?
""",
    "quotations": """
What does "Cat" mean? | What does "cat" mean?
Who wrote "It"? | Who wrote It?
How many blanks are in "x  y"? | How many blanks are in "x y"?
What does the word "dont" mean? | What does the word "don't" mean?
print("a") in Python | print('a') in Python
Who said "I'd like 2"? | Who said "I would like two"?
Is "color" colour? | Is "color" color?
Define "damage" in law | Define "damages" in law
Where is the dog's bowl? | Where is the dogs' bowl?
Where is the dogs' bowl? | Where is the dogs bowl?
What is 6" in cm? | What is 6' in cm?
Does echo “hi” work? | Does echo "hi" work?
""",
    "notation": """
How do I write 3 pm? | How do I write 15:00?
Is July 20, 1969 an American format? | Is 20 July 1969 an American format?
Is it open at 9? | Is it open at 9 am?
Is it open at 9:00? | Is it open at 9 am?
Is it open at 12 pm? | Is it open at 12 am?
Is it open at 3 am? | Is it open at 3 pm?
Was it on May 3? | Was it on March 5?
Was it on 3 May 1969? | Was it on 3 May 1996?
Is 37 °C hot? | Is 37 °F hot?
Is it 5 € or €5? | Is it €5 or 5 €?
Is $5 enough? | Is €5 enough?
Is 5 g hard for a pilot? | Is 5 grams hard for a pilot?
Is 5 g of acceleration safe? | Is 5 grams of acceleration safe?
Are 500 pounds of debt a lot? | Are 500 lbs of debt a lot?
Is 500 g of beef enough? | Is 500 G of beef enough?
How do I say 3 pm in German? | How do I say 15:00 in German?
What is 3 pm in military time? | What is 15:00 in military time?
""",
    "measures and requests": """
How much does it weigh on me? | What is the weight of it on me?
How long is it until noon? | What is the length until noon?
What does the party stand for? | What does the party stand on?
Write me off | Write off
Tell me a joke | Tell a joke
Where do I get off? | Where can I get off?
Explain what it means to me | Explain what it means
List the options for me | List the options
Calculate the dose for me | Calculate the dose
List the kings | Name the kings
How fast is it safe to drive? | How fast is it to drive?
How big is the chance? | How long is the chance?
What does Bernie stand for? | What is Bernie short for?
""",
    "abroad": """
Wie schreibt man fünf? | Wie schreibt man 5?
¿Qué significa dos? | ¿Qué significa 2?
Wenn ich esse, darf ich trinken? | Wenn ich trinke, darf ich essen?
Was mache ich, wenn er geht? | Was mache ich, falls er geht?
¿Sabes nadar? | ¿Nadar?
¿Me podrías decir tu nombre? | ¿Tu nombre?
Kannst du mir sagen, wer er ist? | Wer ist er?
Quiero saber cuándo dijo que viene | ¿Cuándo dijo?
Nenne mir fünf Komponisten | Nenne mir 6 Komponisten
Comment dit-on cinq en allemand ? | Comment dit-on 5 en allemand ?
Trinkt er in Maßen? | Trinkt er in Massen?
Antes de comer, ¿qué bebo? | ¿Qué bebo después de comer?
Wenn der Strom ausfällt, was mache ich dann? | Was mache ich dann, wenn der Strom ausfällt?
Après la cuisson, comment garder les pâtes ? | Comment garder les pâtes après la cuisson ?
""",
    "clauses before what is asked": """
If I am late, can I ask my boss? | Can I ask my boss if I am late?
If it rains, how do I check? | How do I check if it rains?
When I get paid, can I change? | Can I change when I get paid?
When someone knocks, how do I make my dog bark? | How do I make my dog bark when someone knocks?
When I call, how do I teach my dog to sit? | How do I teach my dog to sit when I call?
When it is hot, how do I clean the oven? | How do I clean the oven when it is hot?
While sleeping, how do I wash the dog? | How do I wash the dog while sleeping?
When it rains, do people only fish? | Do people only fish when it rains?
If I smoke, should I tell my doctor? | Should I tell my doctor if I smoke?
When it stops, should I record? | Should I record when it stops?
If I quit to help my family, what should I do? | What should I do if I quit to help my family?
When I eat before I sleep, what should I do? | What should I do when I eat before I sleep?
If I eat, can I not drink? | Can I not drink if I eat?
With a student card, what should I do? | What should I do with a student card?
When I landed, what did I see? | What did I see when I landed?
In Python, why do people use C? | Why do people use C in Python?
In Java, who farms coffee? | Who farms coffee in Java?
In France, how do I learn about wine? | How do I learn about wine in France?
In Linux, what does the company do? | What does the company in Linux do?
If I eat it, can I freeze bread that is old? | Can I freeze bread that is old if I eat it?
Before eating lunch, should I feed the baby? | Should I feed the baby before eating lunch?
If he pays, when do I sell the car? | When do I sell the car if he pays?
When I was young, can I use the time? | Can I use the time when I was young?
In Excel, what is the company? | What is the company in Excel?
If I stop, what should I do? | What should I stop if I do?
Because I am ill, can I take a bath? | Can I take a bath because I am ill?
In Excel, how do I open files I saved? | How do I open files I saved in Excel?
In Excel, what is the formula I used? | What is the formula I used in Excel?
""",
    "names of two words": """
how do i wash sheets | How do I wash Sheets?
is a new jersey expensive | Is a New Jersey expensive?
does apple pay interest | Does Apple Pay interest?
which microsoft teams build it | Which Microsoft Teams build it?
what is the microsoft outlook for 2027 | What is the Microsoft Outlook for 2027?
is the microsoft office open | Is the Microsoft Office open?
does google drive innovation | Does Google Drive innovation?
how do i excel at school | How do I Excel at school?
who has a visual studio | Who has a Visual Studio?
what is a cape in cape town | What is a Cape in Cape Town?
can google earth earth a wire | Can Google Earth Earth a wire?
is west virginia hot | Is West Virginia hot?
what is a roman in the roman empire | What is a Roman in the Roman Empire?
is the lake near lake erie | Is the Lake near Lake Erie?
how heavy is a 3 tesla magnet | How heavy is a 3 Tesla magnet?
where is the anchorage | Where is the Anchorage?
is a bordeaux dry | Is a Bordeaux dry?
who is a newton | Who is a Newton?
what is a trump in excel | What is a Trump in Excel?
How big is New York? | How big is new York?
""",
    "courtesies": """
If you don't mind, should I quit? | Should I quit?
If it is not too much trouble, should I change my oil? | Should I change my oil?
If you have time, should you vote? | Should you vote?
When you have time, what do you do? | What do you do?
If you don't mind, can my boss fire me? | Can my boss fire me?
Explain it, if you have a moment | Explain it
I was wondering if you could name a baby after a brand | Name a baby after a brand
Any chance you could tell twins apart? | Tell twins apart
Do you think you could draft a player twice? | Draft a player twice
Would it be possible for you to list a house without a realtor? | List a house without a realtor
So what if it rains? | What if it rains?
Hi, does it work? | Does it work?
Hello, I want you, who sang it? | I want you, who sang it?
Hello, is it hard to play on a guitar? | Is it hard to play on a guitar?
Hello, is it safe to install? | Is it safe to install?
Ciao, is it safe to use abroad? | Is it safe to use abroad?
Please let me know when he comes | When does he come?
Could you let me know if it rains? | Does it rain?
Hello, is it legal to sing in bars? | Is it legal to sing in bars?
Sorry, but who sang it? | Who sang it?
Write a note that says, thanks | Write a note that says
Write a sign that reads, please | Write a sign that reads
How do I write please? | How do I write?
Please write please | Write please
Can you write please in Thai? | Write in Thai
Can you explain to a child how planes fly? | Explain how planes fly
Quick question marks, what are they? | Marks, what are they?
My question is how it ends | My question is, how does it end?
May I ask if a candidate has children? | Does a candidate have children?
Tell me please what pleases him | Tell me what please him
Please explain how taxes work for kids | How do taxes work for kids?
Explain how planes fly to a child | How do planes fly to a child?
I wonder if you could write a function inside a function | Write a function inside a function
Do you think you could write a script in a month? | Write a script in a month
Write a note that ends with love, thanks | Write a note that ends with love
Draft an email saying I will come, if that is okay | Draft an email saying I will come
""",
    "articles that are missing": """
Who plays doctor? | Who plays a doctor?
How do I play doctor? | How do I play a doctor?
How do I use helmet in Node? | How do I use a helmet in Node?
How do I use container in Flutter? | How do I use a container in Flutter?
How do I import account in Python? | How do I import an account in Python?
Is letter a noun? | Is a letter a noun?
Who is bug? | Who is a bug?
What is the flu vaccine? | What is flu vaccine?
What is the highest and best use? | What is highest and best use?
What is the best practice? | What is best practice?
What is the nearest? | What is nearest?
What is the moon made of? | What is a moon made of?
Is the laptop cheap? | Is laptop cheap?
Why does a headache start? | Why does the headache start?
How do I travel on a budget? | How do I travel on budget?
Is a tomato a fruit and a vegetable? | Is the tomato a fruit and a vegetable?
What is the solar system made of? | What is a solar system made of?
Do I take the kitten or a puppy? | Do I take kitten or a puppy?
What is in the letter? | What is in letter?
How long is a Nile crocodile? | How long is the Nile crocodile?
When did the cold war film start? | When did cold war film start?
What is all of it? | What is all it?
What was the longest week in it? | What was a longest week in it?
When is party? | When is a party?
Where is account? | Where is an account?
What is variable in Excel? | What is a variable in Excel?
Can I bring a friend and doctor? | Can I bring a friend and a doctor?
Can I see doctor who? | Can I see a doctor who?
What is the purpose of array in C? | What is the purpose of an array in C?
Who stars in kremlin? | Who stars in the kremlin?
""",
    "words in their place": """
How do I begin a transaction in SQL? | How do I start a transaction in SQL?
How do I begin spring? | How do I start spring?
When does the service begin? | When does the service start?
How do I begin the car? | How do I start the car?
How do I begin a letter? | How do I start a letter?
When does processing begin? | When does processing start?
How do I switch on an enum in Java? | How do I turn on an enum in Java?
How do I switch on the mode value? | How do I turn on the mode value?
How do I switch off my brain? | How do I turn off my brain?
How do I switch on location strings in C#? | How do I turn on location strings in C#?
Who is the biggest player in the NBA? | Who is the largest player in the NBA?
What is the biggest city bank in it? | What is the largest bank city in it?
Who is the closest friend of Nixon? | Who is the nearest friend of Nixon?
Who is the quickest man? | Who is the fastest man?
How do I fix a date? | How do I repair a date?
How do I fix a drink? | How do I repair a drink?
How do I fix a tap to a wall? | How do I repair a tap to a wall?
How do I fix a leak price? | How do I repair a leak price?
How do I get rid of my dog? | How do I remove my dog?
How do I get rid of rust proofing? | How do I remove rust proofing?
Is it okay not to drink every day? | Is it okay not to drink daily?
What is every day? | What is daily?
How do I take it every day but Sunday? | How do I take it daily but Sunday?
Is the shop open every day? | Is the shop open daily?
Did the idea occur to him? | Did the idea happen to him?
When did the thought occur to him? | When did the thought happen to him?
When did he take the place? | When did he happen?
Can I purchase the farm? | Can I buy the farm?
How do I purchase time? | How do I buy time?
Why is it against the law to vote? | Why is it illegal to vote?
Is it hard? | Is it difficult?
Is the difficult child hard to teach? | Is the hard child hard to teach?
Explain the difference | What is the difference?
List the population of France | List the populations of France
List the symptoms | What are symptoms?
Is it a type of cat? | Is it a kind of cat?
What type is it? | What kind is it?
Explain the difference engine | What is the difference engine?
Which is the biggest city hater? | Which is the largest city hater?
What is the biggest state school? | What is the largest state school?
How do I get rid of rust in C? | How do I remove rust in C?
How do I switch off a printer in C? | How do I turn off a printer in C?
What does begin listening do? | What does start listening do?
What is the best newspaper every day? | What is the best newspaper daily?
How should I turn on a light? | How should I switch on a light?
How can a bus turn on a light? | How can a bus switch on a light?
How do I get rid of old mildew cleaner? | How do I remove old mildew cleaner?
How do I get rid of stain? | How do I remove stain?
""",
    "passives": """
Was Hamlet written by Shakespeare? | Did Hamlet write Shakespeare?
Is Hamlet written by Shakespeare? | Did Shakespeare write Hamlet?
Was the book published by May? | Did May publish the book?
Was the hut designed by the sea? | Did the sea design the hut?
Was it written by 1990? | Did 1990 write it?
Was it painted by hand? | Did hand paint it?
Was the poem not written by Poe? | Did Poe not write the poem?
Was only Hamlet written by Shakespeare? | Did Shakespeare write only Hamlet?
Was the peak first climbed by Hillary? | Did Hillary climb the peak first?
Were all plays written by Shakespeare? | Did Shakespeare write all plays?
Who was Mary seated by? | Who seated Mary?
Who was the queen buried by? | Who buried the queen?
Who was followed by Rome? | Who followed Rome?
Is the fever caused by a virus? | Did a virus cause the fever?
Was the club founded by the river? | Did the river found the club?
Was it directed by him? | Did he direct it?
Was the law written by accident? | Did accident write the law?
Was the album released by Christmas? | Did Christmas release the album?
Was the film released by summer? | Did summer release the film?
Was the novel published by instalments? | Did instalments publish the novel?
Was the portrait painted by candlelight? | Did candlelight paint the portrait?
Was honey produced by bees in Rome? | Did bees in Rome produce honey?
What was it caused by? | What caused that?
Who was the letter written by and to? | Who wrote the letter and to?
Is stress caused by work? | Does stress cause work?
What was the hut built by? | Who built the hut?
""",
    "abbreviations beside themselves": """
What is f (x)? | What is f?
What is a PIP (personal injury protection)? | What is a PIP (performance improvement plan)?
What is AI (artificial insemination)? | What is AI?
What is AI (artificial insemination)? | What is artificial intelligence?
What is VAT (the tax)? | What is VAT?
Is VAT (not duty) due? | Is VAT due?
Is the UK (except Wales) rainy? | Is the UK rainy?
What does VAT (value added tax) stand for? | What does VAT stand for?
What does GCD (a b c) do? | What does a b c do?
What does ABC (a b c) print? | What does a b c print?
What is TLS (1.3)? | What is TLS?
What is WHO (world health organization)? | What is who?
What is PMS (Pantone matching system)? | What is PMS (premenstrual mood swings)?
How do I spell value added tax (VAT)? | How do I spell value added tax?
Is a red car (RC) fast? | Is a car fast?
How long is value added tax (VAT)? | How long is value added tax?
Is it value added tax (VAT) or VAT? | Is it value added tax or VAT?
""",
    "how long and by whom": """
How long does it take for grass to grow? | How long does grass grow?
How long did it take for it to grow? | How long did it take to grow?
How long does it take for me to walk? | How long does it take for you to walk?
How long should it take for a child to read? | How long should a child take to read?
How long can a trial take to end? | How long does it take for a trial to end?
How long do kids take to the water? | How long does it take for kids to the water?
How long do they take to answer? | How long does it take to answer?
How long do I take antibiotics to heal? | How long does it take for antibiotics to heal?
How long does it take up to fill? | How long does it take for up to fill?
How long do letters take to arrive in Rome? | How long do letters in Rome take to arrive?
How long does a man in Rome take to eat? | How long does it take for a man to eat in Rome?
How long did a letter take to arrive? | How long does it take for a letter to arrive?
How does one plant survive? | How do you plant survive?
How does one iron rust? | How do you iron rust?
How does one clean room differ? | How do you clean room differ?
How does one steam engine work? | How do I steam engine work?
I want to know how I look | I want to know how to look
Tell me how I can be so blind | Tell me how to be so blind
Do you know how I clean my house? | How do I clean your house?
Roth IRA vs SEP IRA: what is the cost? | What is the difference between SEP IRA and Roth IRA?
Smith vs Jones: what is the difference in age? | What is the difference between Smith and Jones?
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


WORDS = sorted({word for _, one, other in rows(SAME) + rows(OTHERS) for word in (one + " " + other).split()})


@settings(deadline=None, max_examples=500)
@given(st.lists(st.sampled_from(WORDS), max_size=7), st.lists(st.sampled_from(WORDS), max_size=7))
def test_guard_reads_whatever_words_there_are_and_is_symmetric(one: list[str], other: list[str]) -> None:
    a, b = read(" ".join(one)), read(" ".join(other))

    assert bool(refusal(a, b)) == bool(refusal(b, a))
    assert refusal(a, a) in ("", "empty")

"""Names that are no words of English besides: careless people write them small and mean the same."""

from typing import Final

from .wordlists import rows_of, words

NAMES: Final = words(
    """
    afghanistan albania algeria america angola argentina armenia australia austria azerbaijan bahrain
    bangladesh belarus belgium bolivia bosnia botswana brazil britain bulgaria cambodia cameroon canada
    chile colombia congo croatia cuba cyprus denmark ecuador egypt england estonia ethiopia europe
    finland france germany ghana greece guatemala haiti honduras hungary iceland india indonesia iran
    iraq ireland israel italy jamaica japan kazakhstan kenya korea kosovo kuwait laos latvia lebanon
    liberia libya lithuania luxembourg macedonia madagascar malawi malaysia malta mauritius mexico
    moldova mongolia montenegro morocco mozambique myanmar namibia nepal netherlands nicaragua niger
    nigeria norway oman pakistan palestine panama paraguay peru philippines portugal qatar romania
    russia rwanda samoa scotland senegal serbia singapore slovakia slovenia somalia spain sudan sweden
    switzerland syria taiwan tanzania thailand tunisia uganda ukraine uruguay uzbekistan venezuela
    vietnam wales yemen zambia zimbabwe africa asia antarctica amsterdam athens baghdad bangkok
    barcelona beijing berlin boston brussels bucharest budapest cairo chicago copenhagen dallas delhi
    denver dubai dublin edinburgh florence frankfurt geneva glasgow hamburg helsinki houston istanbul
    jakarta jerusalem karachi kiev lagos lisbon liverpool london madrid manchester melbourne miami milan
    montreal moscow mumbai munich naples oslo paris prague rome salzburg seattle seoul shanghai
    stockholm stuttgart sydney tokyo toronto venice vienna warsaw zurich california colorado florida
    hawaii illinois michigan minnesota nevada ohio oregon texas virginia wisconsin bavaria african
    american arabic asian australian austrian brazilian british bulgarian canadian croatian czech dutch
    egyptian english european french german greek hebrew hindi hungarian icelandic indian iranian irish
    italian japanese korean mexican norwegian portuguese romanian russian scottish spanish thai turkish
    ukrainian welsh monday tuesday wednesday thursday friday saturday sunday january february april june
    july september october november december christmas easter google microsoft facebook youtube netflix
    spotify instagram linkedin whatsapp samsung toyota volkswagen bmw ibm nvidia sony iphone ipad linux
    ubuntu debian javascript typescript postgresql mysql mongodb kubernetes github gitlab wikipedia
    paypal einstein shakespeare mozart beethoven bach chopin picasso darwin freud aristotle plato
    socrates goethe kafka tolstoy dickens hemingway napoleon hitler stalin lenin churchill lincoln obama
    putin gandhi hamlet celsius fahrenheit alzheimer parkinson tv uk eu dna rna fbi nasa nato usb pdf
    html css sql json xml csv gdp gpu cpu gps hiv api url vpn nba nfl mri iq ceo phd faq diy bbc cnn nhs
    imf uae ussr ecg adhd ptsd bmi pm am http https dns ssd everest kilimanjaro danube rhine thames
    volga mississippi sahara himalayas andes alps pyrenees colosseum louvre niagara yosemite yellowstone
    manhattan brooklyn queensland tasmania catalonia andalusia sicily sardinia corsica crete phuket
    kyoto osaka hiroshima nagasaki okinawa hokkaido bangalore kolkata chennai hyderabad lahore kathmandu
    hanoi saigon auckland christchurch canberra brisbane adelaide ottawa vancouver calgary winnipeg
    quebec ontario alberta pittsburgh philadelphia baltimore cincinnati milwaukee minneapolis nashville
    memphis atlanta orlando tampa albuquerque sacramento oakland honolulu arizona arkansas alabama
    alaska connecticut delaware idaho indiana iowa kansas kentucky louisiana massachusetts missouri
    montana nebraska oklahoma pennsylvania tennessee utah vermont wyoming birmingham sheffield
    nottingham leicester cardiff swansea aberdeen cornwall yorkshire essex marseille nantes strasbourg
    toulouse normandy dresden leipzig nuremberg rotterdam antwerp bruges lausanne lucerne palermo genoa
    verona seville valencia malaga bilbao gothenburg reykjavik tallinn vilnius minsk kyiv odessa krakow
    gdansk wroclaw bratislava ljubljana zagreb belgrade sarajevo skopje tirana izmir antalya tehran
    riyadh doha beirut damascus algiers casablanca nairobi kampala kinshasa luanda lusaka harare
    johannesburg pretoria abuja dakar havana bogota caracas montevideo quickbooks turbotax photoshop
    powerpoint onenote onedrive dropbox icloud evernote jira bitbucket sqlite mariadb redis numpy
    matplotlib tensorflow pytorch laravel symfony npm webpack vscode intellij xcode macos airpods
    macbook imac xbox playstation nintendo minecraft fortnite roblox pokemon airbnb ebay etsy tiktok
    snapchat pinterest reddit quora gmail hotmail wordpress shopify woocommerce squarespace salesforce
    hubspot mailchimp zapier firefox powershell arduino autocad solidworks bluetooth wifi vlookup
    xlookup ibuprofen aspirin amoxicillin penicillin metformin atorvastatin simvastatin rosuvastatin
    lisinopril amlodipine losartan metoprolol omeprazole pantoprazole prednisone prednisolone sertraline
    fluoxetine citalopram escitalopram venlafaxine duloxetine bupropion trazodone alprazolam lorazepam
    diazepam clonazepam zolpidem levothyroxine warfarin clopidogrel apixaban gabapentin pregabalin
    tramadol oxycodone naproxen diclofenac azithromycin doxycycline ciprofloxacin cephalexin
    metronidazole fluconazole acyclovir cetirizine loratadine diphenhydramine methotrexate semaglutide
    paracetamol tolkien rowling dostoevsky nietzsche descartes spinoza voltaire rousseau copernicus
    heisenberg feynman vermeer cezanne warhol michelangelo caravaggio vivaldi tchaikovsky rachmaninoff
    stravinsky debussy cleopatra tutankhamun charlemagne mandela gorbachev eisenhower roosevelt nissan
    mazda subaru hyundai volvo porsche ferrari lamborghini renault peugeot swahili tagalog catalan
    estonian latvian lithuanian slovenian serbian bosnian albanian mongolian tibetan bengali telugu urdu
    punjabi ramadan diwali hanukkah halloween christianity judaism hinduism buddhism islam quran aws gcp
    gdpr hvac suv dvd lcd ssh
    """
)

PAIRS: Final = frozenset(
    (first, second)
    for first, seconds in (row.split(" ", 1) for row in rows_of("pairs"))
    for second in seconds.split("|")
)
"""Two words that are a name together, and cannot stand together for anything else: ``google sheets``. Not so
``new jersey``, ``apple pay`` and ``microsoft teams``: a new one, what it does pay, which of its teams."""

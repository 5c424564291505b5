"""Names that are no words of English besides: careless people write them small and mean the same."""

from typing import Final

from .wordlists import words

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
    spotify instagram linkedin whatsapp samsung toyota volkswagen bmw ibm nvidia sony
    iphone ipad linux ubuntu debian javascript typescript postgresql mysql mongodb kubernetes
    github gitlab wikipedia paypal einstein shakespeare mozart beethoven bach chopin picasso darwin
    freud aristotle plato socrates goethe kafka tolstoy dickens hemingway napoleon hitler
    stalin lenin churchill lincoln obama putin gandhi hamlet celsius fahrenheit alzheimer
    parkinson tv uk eu dna rna fbi nasa nato usb pdf html css sql json xml csv gdp gpu cpu gps hiv api
    url vpn nba nfl mri iq ceo phd faq diy bbc cnn nhs imf uae ussr ecg adhd ptsd bmi pm am http https
    dns ssd
    """
)

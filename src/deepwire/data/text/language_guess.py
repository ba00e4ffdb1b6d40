"""In which writing systems and which language is a text? Enough to see that it is not the expected one.

This is a guess for warnings, made offline from tiny tables. It says nothing where the text is short, where a
language is not in the tables, or where two languages are too close to tell.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

_SAME_SCRIPT = {"CJK": "HAN", "IDEOGRAPHIC": "HAN", "HIRAGANA": "KANA", "KATAKANA": "KANA"}

_LANGUAGES = {
    "LATIN": "af bs ca cs cy da de en es et eu fi fr ga gl hr hu id is it lb lt lv ms mt nb nl nn pl pt ro sk"
    " sl sq sr sv sw tl tr uz vi",
    "CYRILLIC": "be bg kk ky mk mn ru sr tg tt uk",
    "HAN": "zh ja yue",
    "KANA": "ja",
    "HANGUL": "ko",
    "ARABIC": "ar fa ps ur",
    "HEBREW": "he yi",
    "GREEK": "el",
    "DEVANAGARI": "hi mr ne",
    "BENGALI": "as bn",
    "TAMIL": "ta",
    "TELUGU": "te",
    "THAI": "th",
    "GEORGIAN": "ka",
    "ARMENIAN": "hy",
    "ETHIOPIC": "am ti",
    "KHMER": "km",
    "LAO": "lo",
    "MYANMAR": "my",
}

_THREE_LETTERS = """
    afr=af amh=am ara=ar arb=ar asm=as bel=be ben=bn bos=bs bul=bg cat=ca ces=cs cmn=zh cym=cy dan=da
    deu=de ell=el eng=en est=et eus=eu fas=fa fin=fi fra=fr gle=ga glg=gl heb=he hin=hi hrv=hr hun=hu
    hye=hy ind=id isl=is ita=it jpn=ja kat=ka kaz=kk khm=km kir=ky kor=ko lao=lo lav=lv lit=lt ltz=lb
    lvs=lv mar=mr mkd=mk mon=mn msa=ms mya=my nep=ne nld=nl nno=nn nob=nb nor=nb npi=ne pes=fa pol=pl
    por=pt pus=ps ron=ro rus=ru slk=sk slv=sl spa=es sqi=sq srp=sr swa=sw swe=sv swh=sw tam=ta tat=tt
    tel=te tgk=tg tgl=tl tha=th tir=ti tur=tr ukr=uk urd=ur uzb=uz uzn=uz vie=vi yid=yi zho=zh zsm=ms
"""
_SYNONYMS = {"no": "nb", "iw": "he", "in": "id", "ji": "yi", "fil": "tl"}
_CODES = dict(pair.split("=") for pair in _THREE_LETTERS.split()) | _SYNONYMS


def language_code(label: str) -> str:
    """The two letters of a language where it has such: `zh` of `zh-Hans`, `zh_CN` and `zho`; `nb` of `no`."""
    base = label.lower().replace("_", "-").split("-")[0]
    return _CODES.get(base, base)


def script_shares(texts: Iterable[str]) -> dict[str, float]:
    """Share of the letters of `texts` in each script, largest first: `{"LATIN": 0.98, "GREEK": 0.02}`."""
    counts: Counter[str] = Counter()
    for character, number in Counter(character for text in texts for character in text).items():
        if character.isalpha():
            counts[script_of(character)] += number
    return {script: number / counts.total() for script, number in counts.most_common()}


@lru_cache(maxsize=1 << 14)
def script_of(letter: str) -> str:
    """The script of a letter, the first word of its Unicode name; Han and kana under one name each."""
    name = unicodedata.name(letter, "UNKNOWN").removeprefix("HALFWIDTH ").removeprefix("FULLWIDTH ")
    name = re.split("[ -]", name, maxsplit=1)[0]
    return _SAME_SCRIPT.get(name, name)


def scripts_of_language(language: str) -> set[str]:
    """The scripts a language is usually written in; empty when the label is not known (`zh_CN` is `zh`)."""
    code = language_code(language)
    return {script for script, languages in _LANGUAGES.items() if code in languages.split()}


def side_warnings(labels: tuple[str, str], shares: tuple[dict[str, float], dict[str, float]]) -> list[str]:
    """What is odd about the scripts of the two sides: swapped, or not the script of the language."""
    expected = [scripts_of_language(label) for label in labels]
    if not all(expected) or not all(shares):
        return []
    fits = [
        [sum(share.get(script, 0.0) for script in scripts) for share in shares] for scripts in expected
    ]  # fits[language][side]
    if fits[0][1] > 0.5 > fits[0][0] and fits[1][0] > 0.5 > fits[1][1]:
        return [f"the two sides look swapped: {labels[0]} is written like {labels[1]} and the reverse"]
    return [
        f"only {fits[side][side]:.0%} of the letters of {labels[side]} are in its script; "
        f"most are {next(iter(shares[side])).lower()}"
        for side in (0, 1)
        if fits[side][side] < 0.5
    ]


_WORDS = {
    "af": "die en van het in is nie wat om te vir dat ek hy sy met aan was ons hulle maar ook daar sal deur"
    " jy",
    "be": "і у на не што з да як гэта па для ён я але было ад за яго яна мы ці ўсе каб пры ў",
    "bg": "на и да в за се от не са по че е с като това но ще или той има съм го при един което беше бъде",
    "ca": "de la i el que a en els les un del per amb una no és al es com dels seva més va són però aquest"
    " també ha hi",
    "cs": "a se na je v že to s z do o i ve pro jako ale za by si po jsem jsou byl které která bylo není nebo"
    " když také",
    "cy": "y yn i a yr o ar ei am wedi bod ac mae fod oedd gan eu hyn ond nid un sydd wrth hwn dros",
    "da": "og i at er det en til på af for med den der som de ikke han har var et jeg sig fra kan men vi om"
    " være hvad mig efter",
    "de": "der die und in den das von zu mit ist sich des auf für nicht ein im eine dem als auch an es werden"
    " aus er hat dass sie ich wir einen einer zum oder nur",
    "en": "the of and to in a is that for it as was with be by on not he his but at are this have from or had"
    " you they which an were we their",
    "es": "de la que el en y a los se del las un por con no una su para es al lo como más pero sus le ha este"
    " son está muy",
    "et": "ja on ei et see ta oma kui ma oli mis ka siis aga kes nii veel või ning seda selle mida välja nagu"
    " pole üks üle",
    "eu": "eta da ez bat du ere izan dute zen dira baina egin zuen honetan beste hau edo bere dela hori ziren"
    " gero baten",
    "fi": "ja on ei että se hän oli mutta kun ovat joka myös mitä niin kuin sen olla tai minä ole ne sitä jos"
    " vain nyt sekä hänen jotka",
    "fr": "de la le et les des en un une du que est pour qui dans au sur pas par ce il plus ne se avec sont"
    " je elle mais nous vous cette aux ou",
    "ga": "an na agus a ar i is go ag sé le do bhí sin tá leis atá mar chun ach siad nach bhfuil ní gur aon"
    " dá",
    "gl": "de a que o e do da en os un no na para por con non se unha as máis ao como dos foi pero sobre súa"
    " das é tamén",
    "hr": "i je u se na da za su s od što kao koji nije a o bi ali iz ne to po sam biti koja ili samo bio"
    " nakon također još prije gdje",
    "hu": "a az és hogy nem is egy van ez meg de csak ha már mint még volt azt el vagy ki aki amely lehet"
    " szerint ezt után kell minden",
    "id": "yang dan di dengan untuk tidak ini dari dalam itu pada akan adalah ke juga saya bisa ada oleh"
    " mereka tersebut karena kami telah atau anda sebuah",
    "is": "og að í á er sem um til við var ekki hann það með fyrir en af ég hefur eru þá því þetta hún verið"
    " hafa þess",
    "it": "di e che la il un a per in è una non del si con della le da sono dei i nel al più anche come ha"
    " alla gli ma questo delle dal",
    "lt": "ir į yra kad iš su tai ne bet o buvo kaip ar apie jo už nuo tik dėl per prie jis taip jau savo mes"
    " metų",
    "lv": "un ir ar uz no kas par ka lai ne bet tas to vai pie kā arī viņš bija tika pēc vēl ja tā es tiek"
    " gan jau līdz",
    "mk": "на и да се во од за е не со го ќе ги но тоа што како беше дека која по сум има ја или овој може",
    "ms": "yang dan di dengan untuk tidak ini dalam itu pada akan adalah ke boleh saya kerana oleh mereka"
    " tersebut telah atau anda ialah daripada kepada bagi beliau",
    "nb": "og i det er at en til på som av for med de ikke den han har var et jeg seg fra kan men vi om ble"
    " være hva etter meg også",
    "nl": "de van het een en in is dat op te zijn met voor die niet aan er om ook als dan maar bij uit nog"
    " naar heeft worden ze je hebben deze door",
    "nn": "og i det er at ein til på som av for med dei ikkje den han har var eit eg seg frå kan men vi om"
    " vart vere kva etter meg",
    "pl": "w i na z się do nie to że jest o a jak po co ale od za przez dla tak są jego było ma który już"
    " tylko być oraz czy",
    "pt": "de a que o e do da em os um para com não uma se na no as por mais dos como mas foi ao das seu é"
    " são também você está",
    "ro": "de și în a la cu nu care pe este din o un că mai să pentru au fost ce al sunt prin lui dar sau"
    " după fi această ale",
    "ru": "и в не на что с он как по это но из у за от так же для я все бы было его она мы был то или также"
    " который только",
    "sk": "a v sa na je že to s z do o i vo pre ako ale za by si po som sú bol ktoré ktorá bolo nie alebo keď"
    " aj už podľa",
    "sl": "in je v se na da za so z ki pa ne bi tudi po od s bil pri kot iz ali še bilo ter le ni sem zelo",
    "sq": "të e në një dhe për me që nga i se ka si është do nuk më kjo u ai por janë edhe ose ishte kur",
    "sr": "и је у се на да за су с од што као који није а о би али из не то по сам бити која или само i je u"
    " se na da za su s od što kao koji nije a o bi ali iz ne to po sam biti koja ili samo",
    "sv": "och i att det som en på är av för med den till inte om ett han har de jag var sig från vi så kan"
    " men eller när vid hade",
    "sw": "ya na wa kwa ni katika la za cha hii kama au yake huo hiyo watu wao sana bila hivyo yao kuwa pia"
    " lakini",
    "tl": "ang ng sa na mga at ay ko ni si hindi siya niya ito para kung may pa mo din ako kanyang isang",
    "tr": "ve bir bu da de için ile çok ne o gibi daha olarak var en kadar olan değil her sonra ama ki ben mi"
    " oldu ise veya",
    "uk": "і в на не що з та у до як за це від його для про але є було й який він вона чи бути або ми ще"
    " також",
    "uz": "va bu bilan uchun bir ham edi emas deb esa kerak har yoki lekin men siz shu keyin ning",
    "vi": "và của là có không được cho một trong với các những người này đã để khi từ đến như ở về tôi cũng"
    " ra vào",
    "ar": "في من على أن إلى التي هذا عن ما كان هذه الذي لا مع أو كما قد بين ذلك بعد هو هي لم ثم كل",
    "fa": "و در به از که این را با است برای آن یک خود تا بر هم نیز می شود شد شده ما اما یا بود",
    "ur": "کے کی میں اور ہے سے کا کو اس یہ کہ پر نے ہیں بھی ایک نہیں تھا کر جو لئے تو وہ گیا",
    "hi": "के है में की और से का को पर यह ने कि भी हैं नहीं एक इस जो कर हो तो था लिए",
    "mr": "आहे आणि या च्या मध्ये हे तो ते एक नाही आहेत होता पण व असे होते केली केला काही त्या तर",
    "kk": "және бұл мен бір үшін деп да де бар осы ол ал болып еді ғана сол оның қазақ туралы болады",
}

_BY_SCRIPT = "am bn el he hy ja ka km ko lo my ta te th zh"
KNOWN = (*_WORDS, *_BY_SCRIPT.split())
"""Languages that are told apart, by their words or, where hardly another one shares it, by their script."""

_FREQUENT = {language: frozenset(words.split()) for language, words in _WORDS.items()}
_PUNCTUATION = ".,;:!?\"'()[]{}<>-*/«»„“”‘’‚…–—¿¡،؟؛।"
_KANA = 0.1
"""Japanese has more kana than this share of its letters; Chinese has none."""
_MOST_WORDS = 10_000
"""More words than these change no guess; the rest of the lines is not read."""
_FEWEST_WORDS, _FEWEST_LETTERS = 20, 20
_FREQUENT_SHARE, _FREQUENT_KINDS = 0.08, 4
"""A text in a language has at least this share of its frequent words, and so many different ones."""
_CLEAR, _CLEAR_COUNT, _BACKGROUND = 3, 5, 2
"""A language is chosen if its frequent words that another candidate lacks occur so many times as often as the
reverse, and at least so often; and if no language that is not a candidate fits so many times better."""


class Guess(NamedTuple):
    """What a text seems to be written in."""

    language: str
    """As the caller wrote it."""
    share: float
    """The share (0 to 1) of words that are frequent ones of it, or of letters in its script."""


def guess_language(lines: Iterable[str], among: Sequence[str] = KNOWN) -> Guess | None:
    """The language of `among` that a text is in; None where that cannot be told.

    It cannot be told if the text is short (below about twenty words) or in a language that is none of
    `among`, nor between two that are too close or not in the tables.

    Args:
        lines: The text; no more than ten thousand words are read.
        among: Labels such as `de`, `deu`, `pt_BR` or `zh-Hans`. Two of one language cannot be told apart.
    """
    words = _words(lines)
    letters = script_shares(words)
    fitting = [label for label in dict.fromkeys(among) if _is_written_so(label, letters)]
    if not fitting or sum(map(len, words)) < _FEWEST_LETTERS:
        return None
    unknown = [label for label in fitting if language_code(label) not in _FREQUENT]
    if unknown:
        share = sum(letters.get(script, 0.0) for script in scripts_of_language(unknown[0]))
        return Guess(unknown[0], share) if len(fitting) == 1 and share else None
    return _by_words(words, fitting)


def _words(lines: Iterable[str]) -> list[str]:
    words: list[str] = []
    for line in lines:
        words += filter(None, (word.strip(_PUNCTUATION) for word in line.lower().split()))
        if len(words) >= _MOST_WORDS:
            break
    return words


def _is_written_so(label: str, letters: Mapping[str, float]) -> bool:
    """Whether a text with these shares of scripts can be in a language; an unknown one can be in any."""
    scripts = scripts_of_language(label)
    if not scripts:
        return True
    if "HAN" in scripts and ("KANA" in scripts) != (letters.get("KANA", 0.0) > _KANA):
        return False
    return sum(letters.get(script, 0.0) for script in scripts) > 0.5


def _by_words(words: Sequence[str], fitting: Sequence[str]) -> Guess | None:
    counts = {
        language: Counter(word for word in words if word in frequent)
        for language, frequent in _FREQUENT.items()
    }
    best = max(fitting, key=lambda label: counts[language_code(label)].total())
    code = language_code(best)
    share = counts[code].total() / len(words)
    if len(words) < _FEWEST_WORDS or share < _FREQUENT_SHARE or len(counts[code]) < _FREQUENT_KINDS:
        return None
    candidates = [language_code(label) for label in fitting]
    for other, count in counts.items():
        only_here, others = (counts[code] - count).total(), (count - counts[code]).total()
        if other in candidates and other != code and only_here < max(_CLEAR * others, _CLEAR_COUNT):
            return None
        if others > max(_BACKGROUND * only_here, _CLEAR_COUNT):
            return None
    return Guess(best, share) if candidates.count(code) == 1 else None

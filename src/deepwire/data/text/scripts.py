"""Which writing systems a text is in, and whether that fits its language."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

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

"""Which writing systems a text is in, and whether that fits its language."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

_SAME_SCRIPT = {"CJK": "HAN", "HIRAGANA": "KANA", "KATAKANA": "KANA"}

_LANGUAGES = {
    "LATIN": "af ca cs cy da de en es et eu fi fr ga gl hr hu id is it lb lt lv ms mt nb nl nn no pl pt ro sk"
    " sl sq sv sw tl tr uz vi",
    "CYRILLIC": "be bg kk ky mk mn ru tg tt uk",
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
    name = unicodedata.name(letter, "UNKNOWN").split()[0]
    name = name.split("-")[0]
    return _SAME_SCRIPT.get(name, name)


def scripts_of_language(language: str) -> set[str]:
    """The scripts a language is usually written in; empty when the label is not known (`zh_CN` is `zh`)."""
    code = language.lower().replace("_", "-").split("-")[0]
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

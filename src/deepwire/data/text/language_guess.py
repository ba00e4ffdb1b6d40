"""The language and the scripts of a text, for warnings, reports and servers that choose."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

_SAME_SCRIPT = {"CJK": "HAN", "IDEOGRAPHIC": "HAN", "HIRAGANA": "KANA", "KATAKANA": "KANA"}

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

UNSPACED = (
    "\u0e00-\u0eff"  # Thai and Lao
    "\u1000-\u109f"  # Myanmar
    "\u1780-\u17ff"  # Khmer
    "\u3040-\u30ff"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff"  # Han
)
"""Their characters, for between the brackets of a regular expression; not Hangul, since Korean has spaces."""

_CLOSE = [set(group.split()) for group in ("da nb nn", "bs hr sr", "id ms", "zh yue wuu", "cs sk", "gl pt")]
"""Languages that are taken for each other now and then."""
_FEWEST_LETTERS = 50
_MAX_CHARACTERS = 20_000
_CLEAR = 10.0
"""Nats between the most probable language of a text and the next one."""


def language_code(label: str) -> str:
    """The two letters of a language where it has such: `zh` of `zh-Hans`, `zh_CN` and `zho`; `nb` of `no`."""
    base = label.lower().replace("_", "-").split("-")[0]
    return _CODES.get(base, base)


def script_shares(texts: Iterable[str]) -> dict[str, float]:
    """Share of the letters of `texts` in each script, largest first: `{"LATIN": 0.98, "GREEK": 0.02}`."""
    counts: Counter[str] = Counter()
    for character, number in Counter(character for text in texts for character in text).items():
        if character.isalpha():
            counts[_script_of(character)] += number
    return {script: number / counts.total() for script, number in counts.most_common()}


@lru_cache(maxsize=1 << 14)
def _script_of(letter: str) -> str:
    """The first word of a letter's Unicode name; Han and kana under one name each."""
    name = unicodedata.name(letter, "UNKNOWN").removeprefix("HALFWIDTH ").removeprefix("FULLWIDTH ")
    name = re.split("[ -]", name, maxsplit=1)[0]
    return _SAME_SCRIPT.get(name, name)


@cache
def _identifier() -> LanguageIdentifier:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # its tables take a second to read

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=False)


def _log_probabilities(text: str) -> dict[str, float]:
    """By language code, up to a constant; none for a text without letters or of unknown ones alone."""
    if not any(map(str.isalpha, text)):
        return {}
    ranked = {language_code(code): float(value) for code, value in reversed(_identifier().rank(text))}
    return ranked if len(set(ranked.values())) > 1 else {}


def language_shares(text: str, labels: Collection[str]) -> dict[str, float]:
    """How probable each of some labels (`de`, `pt_BR`) is, most probable first, together 1; unknown: none."""
    logs = _log_probabilities(text)
    known = {label: logs[language_code(label)] for label in labels if language_code(label) in logs}
    if not known:
        return {}
    weights = np.exp(np.array([*known.values()]) - max(known.values()))
    shares = zip(known, (weights / weights.sum()).tolist(), strict=True)
    return dict(sorted(shares, key=lambda share: -share[1]))


def guess_language(lines: Iterable[str], labels: Sequence[str]) -> str | None:
    """The label whose language a text is in, or the code of another one; None where that is unclear."""
    text = "\n".join(lines)[:_MAX_CHARACTERS]
    logs = _log_probabilities(text) if sum(map(str.isalpha, text)) >= _FEWEST_LETTERS else {}
    if not logs:
        return None
    best = max(logs, key=lambda code: logs[code])
    close = next((group for group in _CLOSE if best in group), {best})
    expected = [label for label in labels if language_code(label) in close & logs.keys()]
    if expected:
        return max(expected, key=lambda label: logs[language_code(label)])
    clear = logs[best] - max(value for code, value in logs.items() if code not in close) > _CLEAR
    return best if clear else None


def is_known_language(label: str) -> bool:
    """Whether texts in a language can be told from others."""
    return language_code(label) in map(language_code, _identifier().labels)

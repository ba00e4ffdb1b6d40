"""Languages as clients of LibreTranslate write them: their codes and English names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from deepwire.data.text.language_guess import language_code

_NAMES = """
    af=Afrikaans am=Amharic ar=Arabic as=Assamese az=Azerbaijani be=Belarusian bg=Bulgarian bn=Bengali
    bs=Bosnian ca=Catalan cs=Czech cy=Welsh da=Danish de=German el=Greek en=English eo=Esperanto es=Spanish
    et=Estonian eu=Basque fa=Persian fi=Finnish fr=French ga=Irish gl=Galician gu=Gujarati ha=Hausa he=Hebrew
    hi=Hindi hr=Croatian hu=Hungarian hy=Armenian id=Indonesian ig=Igbo is=Icelandic it=Italian ja=Japanese
    ka=Georgian kk=Kazakh km=Khmer kn=Kannada ko=Korean ky=Kyrgyz lb=Luxembourgish lo=Lao lt=Lithuanian
    lv=Latvian mg=Malagasy mk=Macedonian ml=Malayalam mn=Mongolian mr=Marathi ms=Malay mt=Maltese my=Burmese
    nb=Norwegian ne=Nepali nl=Dutch nn=Nynorsk oc=Occitan or=Odia pa=Punjabi pl=Polish ps=Pashto pt=Portuguese
    ro=Romanian ru=Russian sd=Sindhi si=Sinhala sk=Slovak sl=Slovenian so=Somali sq=Albanian sr=Serbian
    sv=Swedish sw=Swahili ta=Tamil te=Telugu tg=Tajik th=Thai ti=Tigrinya tl=Tagalog tr=Turkish tt=Tatar
    ug=Uyghur uk=Ukrainian ur=Urdu uz=Uzbek vi=Vietnamese xh=Xhosa yi=Yiddish yo=Yoruba yue=Cantonese
    zh=Chinese zu=Zulu
"""
_WRITTEN: Mapping[str, tuple[str, str]] = {
    **{code: (code, name) for code, name in (pair.split("=") for pair in _NAMES.split())},
    "pt-br": ("pt-BR", "Portuguese (Brazil)"),
    "zh": ("zh-Hans", "Chinese"),
    "zh-hant": ("zh-Hant", "Chinese (traditional)"),
}
_OTHER_SPELLINGS: Mapping[str, str] = {
    "pb": "pt-br",
    "zt": "zh-hant",
    "zh-hans": "zh",
    "zh-cn": "zh",
    "zh-sg": "zh",
    "zh-tw": "zh-hant",
    "zh-hk": "zh-hant",
}


def plain_code(label: str) -> str:
    """One spelling of a label, in lower case: `zh-hant` of `zt` and `zh_TW`, `de` of `deu` and `DE`."""
    lower = label.strip().lower().replace("_", "-")
    known = _OTHER_SPELLINGS.get(lower, lower)
    return known if known in _WRITTEN else language_code(known) if "-" not in known else known


class LanguageCodes:
    """The languages of a server.

    Args:
        labels: What its models call them.
    """

    def __init__(self, labels: Iterable[str]) -> None:
        self._labels: dict[str, str] = {}
        for label in labels:
            self._labels.setdefault(plain_code(label), label)
        for code, label in list(self._labels.items()):
            if code != "zh-hant":  # another script, and not what `zh` stands for
                self._labels.setdefault(code.partition("-")[0], label)

    def label(self, code: str) -> str | None:
        """The label that the models have for a code; None = there is no such language here."""
        return self._labels.get(plain_code(code))


def written_code(label: str) -> str:
    """The code of a language in an answer."""
    code = plain_code(label)
    return _WRITTEN.get(code, (code, ""))[0]


def language_name(label: str) -> str:
    """The English name of a language; its code where we know none."""
    code = plain_code(label)
    base = code.partition("-")[0]
    return _WRITTEN.get(code, _WRITTEN.get(base, ("", code)))[1]

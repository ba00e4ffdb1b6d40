"""Is a text in the language that a model translates from? A warning where it clearly is not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deepwire.data.text.language_guess import (
    KNOWN,
    guess_language,
    language_code,
    script_shares,
    scripts_of_language,
)
from deepwire.data.text.language_profiles import LanguageProfiles
from deepwire.errors import Tell

_MOST_WORDS = 2_000
_EVERYWHERE = "LATIN"  # names in Latin letters stand in text of all languages
_FEWEST_WORDS, _MOST_CHARACTERS, _SURE = 20, 20_000, 0.999


class SourceLanguage:
    """Looks at the beginning of a text, and warns once if it is clearly in another language.

    Nothing is said about short text, or about languages that cannot be told apart: by frequent words
    (`guess_language`), and where these do not tell by what the languages of the model look like.

    Args:
        language: What the model translates from, as its run file has it.
        others: What else the text may be in besides the languages known to the guess.
        warn: Receives the warning.
        profiles: What the languages of the model look like, if that is known.
    """

    def __init__(
        self, language: str, others: Iterable[str], warn: Tell, profiles: LanguageProfiles | None = None
    ) -> None:
        self._language, self._warn = language, warn
        code, scripts = language_code(language), scripts_of_language(language)
        self._scripts = scripts
        every = dict.fromkeys([*KNOWN, *map(language_code, others)])
        self._among = [language, *(other for other in every if other != code)]
        # Of a language that nobody knows, or of a name such as "source", no text can be said not to be.
        self._profiles = profiles if profiles is not None and language in profiles.labels else None
        self._open = code in KNOWN or bool(scripts) or self._profiles is not None
        self._lines: list[str] = []
        self._words, self._next = 0, 1

    def look(self, lines: Sequence[str]) -> None:
        """Take some more lines into account; after a few thousand words nothing is done."""
        if not self._open:
            return
        self._lines += lines
        self._words += sum(len(line.split()) for line in lines)
        if self._words < self._next:
            return
        # Lines may come one by one: looking only at twice as many costs no more than looking once.
        self._next = 2 * self._words
        guess = guess_language(self._lines, self._among)
        language = self._by_profile() if guess is None else guess.language
        script = next(iter(script_shares(self._lines)), _EVERYWHERE)
        if language is None and self._scripts and script not in {*self._scripts, _EVERYWHERE}:
            language = f"{script.lower()} letters"
        if language not in (None, self._language):
            self._warn(f"the text looks like {language!r}, but the model translates from {self._language!r}")
        if language is not None or self._words > _MOST_WORDS:
            self._open = False
            self._lines.clear()

    def _by_profile(self) -> str | None:
        """The language of the model that the text is in beyond doubt; None if that cannot be told."""
        if self._profiles is None or self._words < _FEWEST_WORDS:
            return None
        shares = self._profiles.shares("\n".join(self._lines)[:_MOST_CHARACTERS])
        best = next(iter(shares), None)
        return best if best is not None and shares[best] > _SURE else None

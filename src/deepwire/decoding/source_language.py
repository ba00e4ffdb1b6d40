"""Whether text that is to be translated is in the language that the model translates from; only a warning."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deepwire.data.text.language_guess import KNOWN, guess_language, language_code, scripts_of_language
from deepwire.decoding.model_inputs import Warn

_BY_SCRIPT = ("am", "bn", "el", "he", "hy", "ja", "ka", "km", "ko", "lo", "my", "ta", "te", "th", "zh")
"""Languages that their script tells."""
_MOST_WORDS = 2_000


class SourceLanguage:
    """Looks at the beginning of a text, and warns once if it is clearly in another language.

    Nothing is said about short text, or about languages that cannot be told apart (`guess_language`).

    Args:
        language: What the model translates from, as its run file has it.
        others: What else the text may be in besides the languages known to the guess.
        warn: Receives the warning.
    """

    def __init__(self, language: str, others: Iterable[str], warn: Warn) -> None:
        self._language, self._warn = language, warn
        code, scripts = language_code(language), scripts_of_language(language)
        foreign = [one for one in _BY_SCRIPT if not scripts & scripts_of_language(one)]
        every = dict.fromkeys([*KNOWN, *foreign, *map(language_code, others)])
        self._among = [language, *(one for one in every if one != code)]
        # Of a language that nobody knows, or of a name such as "source", no text can be said not to be.
        self._open = code in KNOWN or bool(scripts)
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
        if guess is not None and guess.language != self._language:
            self._warn(
                f"the text looks like {guess.language!r}, but the model translates from {self._language!r}"
            )
        if guess is not None or self._words > _MOST_WORDS:
            self._open = False
            self._lines.clear()

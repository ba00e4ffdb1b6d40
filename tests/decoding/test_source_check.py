"""Text in another script or language than the model translates from: warned about once, where it is clear."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pytest

from deepwire.data.vocabulary import Vocabulary
from deepwire.decoding.model_inputs import SourceCheck


class Pieces:
    """A vocabulary of these pieces."""

    def __init__(self, *pieces: str) -> None:
        self._pieces, self.size = pieces, len(pieces)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        return [self._pieces[index] for index in ids]


KNOWN = {"de": Pieces("Hund", "schläft"), "ru": Pieces("привет", "dog"), "ja": Pieces("東京", "いぬ", "dog")}


def warnings(language: str, parts: Iterable[Sequence[str]], other: str = "en") -> list[str]:
    said: list[str] = []
    vocabulary: Vocabulary = KNOWN[language]  # type: ignore[assignment] # a stand-in
    check = SourceCheck(vocabulary, (language, other), said.append)
    for lines in parts:
        check.look(lines)
    return said


@pytest.mark.parametrize(
    ("language", "line", "script"),
    [
        ("de", "Привет, мир", "cyrillic"),
        ("de", "東京は大きい", "han"),
        ("ru", "Καλημέρα κόσμε", "greek"),
        ("ja", "안녕하세요", "hangul"),
        ("de", "hund", ""),
        ("ja", "iPhone 15 Pro", ""),
        ("ja", "東京", ""),
        ("de", "Das Wort мир heißt Frieden", ""),
        ("de", "12 + 3", ""),
    ],
)
def test_one_line_in_another_script_is_enough(language: str, line: str, script: str) -> None:
    said = warnings(language, [[line], [line]])
    assert len(said) == bool(script)
    assert all(script in each for each in said)


@pytest.mark.parametrize("window", [1, 1000])
def test_the_other_language_is_said_once(multi30k: Mapping[str, Sequence[str]], window: int) -> None:
    lines = multi30k["en"][:3000]
    parts = [lines[first : first + window] for first in range(0, len(lines), window)]
    assert warnings("de", parts) == ["the text looks like 'en', but the model translates from 'de'"]
    assert warnings("de", [multi30k["de"][:3000]]) == []
    assert warnings("de", [multi30k["en"][:300]]) == []  # too short to be told

"""Files of which all but some stretches of text stays as it is, character by character."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from deepwire.documents.document import Run


class Stretch(NamedTuple):
    """A stretch of a file.

    Attributes:
        begin, end: Where it stands.
        run: What is to be translated there.
    """

    begin: int
    end: int
    run: Run


class ReplacedText:
    """A file with text at known places.

    Args:
        source: The whole file.
        blocks: The places, unit by unit, in their order.
        encode: What is written for a translation and the stretch of the file that it replaces.
    """

    def __init__(
        self,
        source: str,
        blocks: Sequence[Sequence[Stretch]],
        encode: Callable[[str, str], str] = lambda text, _raw: text,
    ) -> None:
        self._source, self._blocks, self._encode = source, blocks, encode
        self.units: Sequence[Sequence[Run]] = [[stretch.run for stretch in block] for block in blocks]

    def text_with(self, translations: Sequence[Sequence[str]]) -> str:
        """The file with other texts; a run that is fixed, or stays the same, is not even written anew."""
        parts: list[str] = []
        at = 0
        for block, texts in zip(self._blocks, translations, strict=True):
            for stretch, text in zip(block, texts, strict=True):
                raw = self._source[stretch.begin : stretch.end]
                same = stretch.run.fixed or text == stretch.run.text
                parts += [self._source[at : stretch.begin], raw if same else self._encode(text, raw)]
                at = stretch.end
        return "".join([*parts, self._source[at:]])

    def written(self, translations: Sequence[Sequence[str]]) -> bytes:
        """The file with other texts, as UTF-8."""
        return self.text_with(translations).encode()

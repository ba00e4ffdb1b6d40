"""Plain text: line breaks and empty lines stay."""

from __future__ import annotations

from collections.abc import Sequence

from deepwire.serve.documents.document import Options, Pieces, Run
from deepwire.serve.documents.file_text import decoded

_MARK = "\ufeff"


class TextDocument:
    """A text.

    Args:
        text: All of it.
    """

    def __init__(self, text: str) -> None:
        self._mark = _MARK if text.startswith(_MARK) else ""
        self.units: Sequence[Sequence[Run]] = [[Run(text.removeprefix(_MARK))]]

    def written(self, translations: Sequence[Pieces]) -> bytes:
        """The other text, as UTF-8."""
        return (self._mark + "".join(piece.text for piece in translations[0])).encode()


def read_text(content: bytes, options: Options) -> TextDocument:  # noqa: ARG001 - as all readers
    """Read a text.

    Raises:
        DataError: It is not UTF-8.
    """
    return TextDocument(decoded(content))

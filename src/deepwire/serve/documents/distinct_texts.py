"""Texts on their way to a model, which translates each different one once where it can."""

from __future__ import annotations


class DistinctTexts:
    """What to translate: each different text once, or all in their order.

    Args:
        in_order: For models that read the texts of a document one after the other.

    Attributes:
        texts: What to translate; line by line what a model reads.
        starts: The places of those that begin a document; None: each stands for itself.
    """

    def __init__(self, *, in_order: bool) -> None:
        self.texts: list[str] = []
        self.starts: set[int] | None = set() if in_order else None
        self._places: dict[str, int] = {}

    def begin_document(self) -> None:
        """The next text begins a document."""
        if self.starts is not None:
            self.starts.add(len(self.texts))

    def place(self, text: str) -> int:
        """Where the text is among `texts`, to which it is added if need be."""
        if text not in self._places or self.starts is not None:
            self._places[text] = len(self.texts)
            self.texts.append(text)
        return self._places[text]

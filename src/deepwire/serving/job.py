"""The texts of one request, and their translations as they come."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from deepwire.decoding.translation_io import Request, Translation
from deepwire.serving.served_model import Search

# Thousands of texts of one word in a batch would have more logits at a time than all else takes.
_LEAST_COST = 8


class TextFailedError(Exception):
    """The model failed on a text.

    Attributes:
        index: Which text of its request, counted from 0.
    """

    def __init__(self, index: int) -> None:
        super().__init__(f"text {index}")
        self.index = index


class Job:
    """The texts of one request.

    Attributes:
        requests: The texts that the model is to translate.
        lengths: Subwords of each.
        search: How.
        client: Who asks: clients take turns.
        costs: What translating each takes, in subwords: of short texts the rows of the search are what costs.
        answer: Gets the translations in order, or `TextFailedError`.
    """

    def __init__(
        self, requests: Sequence[Request], lengths: Sequence[int], search: Search, client: Hashable = None
    ) -> None:
        self.requests, self.lengths, self.search, self.client = requests, lengths, search, client
        self.costs = [max(_LEAST_COST, length) for length in lengths]
        self.answer: Future[list[Translation]] = Future()
        self.answer.set_running_or_notify_cancel()  # only `Batcher` ends it
        self._translations: list[Translation | None] = [None] * len(requests)
        self._left = len(requests)

    def set_translation(self, index: int, translation: Translation) -> None:
        """One of the texts is translated."""
        self._translations[index] = translation
        self._left -= 1
        if self._left == 0 and not self.answer.done():
            self.answer.set_result(
                [translation for translation in self._translations if translation is not None]
            )

    def failed(self, error: Exception) -> None:
        """One of the texts cannot be translated, and so the request has failed."""
        if not self.answer.done():
            self.answer.set_exception(error)


class Waiting(NamedTuple):
    """A text that waits for its translation."""

    job: Job
    place: int

    @property
    def subwords(self) -> int:
        """Of the source."""
        return self.job.lengths[self.place]

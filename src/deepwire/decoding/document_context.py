"""Document context in decoding: the lines in front of each line, and their subwords."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from deepwire.data.context import NO_CONTEXT, ContextConfig, in_front, separator_of
from deepwire.data.languages import Languages
from deepwire.data.text.pairs import is_blank
from deepwire.data.vocabulary import Vocabularies, Vocabulary
from deepwire.decoding.translation_io import ContextLine, Request


class Wave(NamedTuple):
    """Lines that are translated together: their places, and their requests with context."""

    places: Sequence[int]
    requests: Sequence[Request]


class Documents:
    """Gives each line of documents its context; an empty line ends a document.

    Where targets have context, a line waits for the translation of the line in front of it: first lines of
    documents are translated together, then second ones, and so on. Otherwise all are translated together, in
    one wave where the model reads no context.
    """

    def __init__(self, context: ContextConfig) -> None:
        self._context = context
        self._open: list[ContextLine] = []
        """The latest lines of the document that goes on."""
        self._waiting: list[list[ContextLine]] = []
        """The documents whose last line is being translated."""

    def line_waves(self, requests: Sequence[Request]) -> Iterator[Wave]:
        """Waves of the next lines, empty ones among them; those of a document may come in several calls."""
        if not self._context.used:
            yield Wave(range(len(requests)), requests)
            return
        full = [place for place, request in enumerate(requests) if not is_blank(request.text)]
        empty = sorted(set(range(len(requests))) - set(full))
        if empty:
            yield Wave(empty, [requests[place] for place in empty])
        starts = [index for index, place in enumerate(full) if place - 1 in empty]
        for wave in self.waves([requests[place] for place in full], starts):
            yield Wave([full[index] for index in wave.places], wave.requests)
        if len(requests) - 1 in empty:
            self._open = []

    def waves(self, requests: Sequence[Request], starts: Collection[int]) -> Iterator[Wave]:
        """Waves of the next lines; call `note` with the translations of one before taking the next.

        Args:
            requests: The lines, none of them empty.
            starts: The places of those that begin a document.
        """
        contexts, documents = [self._open], list[list[int]]([[]])
        for place in range(len(requests)):
            if place in starts:
                documents.append([])
                contexts.append([])
            documents[-1].append(place)
        for group in self._together(documents):
            asked = []
            for number, place in group:
                asked.append(replace(requests[place], context=tuple(contexts[number][-self._context.most :])))
                contexts[number].append((requests[place].text, ""))
            self._waiting = [contexts[number] for number, _ in group] if self._context.target else []
            yield Wave([place for _, place in group], asked)
        self._open, self._waiting = contexts[-1][-self._context.most :], []

    def note(self, translations: Iterable[str]) -> None:
        """Take note of the translations of the latest wave."""
        for lines, translation in zip(self._waiting, translations, strict=False):
            lines[-1] = (lines[-1][0], translation)

    def _together(self, documents: Sequence[Sequence[int]]) -> Iterator[list[tuple[int, int]]]:
        """Groups of lines that can be translated together, each as number of the document and place."""
        every = [(number, place) for number, places in enumerate(documents) for place in places]
        if not self._context.target:
            yield from [every] if every else []
            return
        for index in range(max(map(len, documents))):
            yield [(number, places[index]) for number, places in enumerate(documents) if index < len(places)]


def contexts_of(
    pairs: Iterable[tuple[str, str]], before: list[ContextLine], most: int
) -> Iterator[list[ContextLine]]:
    """The lines in front of each of some lines with their translations, the earliest first.

    `before` has the lines in front of the first, and is updated for a later call. An empty source ends a
    document.
    """
    for pair in pairs:
        yield before[-most:] if most else []
        if is_blank(pair[0]):
            before.clear()
        else:
            before.append(pair)
            del before[: -most or None]


@dataclass(frozen=True)
class ContextEncoder:
    """Encodes what a model reads in front of lines."""

    vocabularies: Vocabularies
    languages: Languages | None = None
    context: ContextConfig = NO_CONTEXT

    def sources(self, contexts: Sequence[Sequence[ContextLine]], lengths: Sequence[int]) -> list[list[int]]:
        """Subwords in front of each source; `lengths` are the subwords of each line itself."""
        count = self.context.source
        texts = [[line for line, _ in lines[-count:]] if count else [] for lines in contexts]
        return self._encoded(self.vocabularies.source, texts, lengths)

    def targets(self, contexts: Sequence[Sequence[ContextLine]], lengths: Sequence[int]) -> list[list[int]]:
        """Subwords in front of each target; `lengths` has the source's where there is no target yet."""
        count = self.context.target
        texts = [[line for _, line in lines[-count:]] if count else [] for lines in contexts]
        return self._encoded(self.vocabularies.target, texts, lengths)

    def with_contexts(
        self,
        sources: Sequence[Sequence[int]],
        heads: Sequence[int],
        contexts: Sequence[Sequence[ContextLine]],
    ) -> tuple[list[list[int]], list[int]]:
        """Sources with contexts inserted behind their first `heads` symbols, and the lengths of the contexts.

        A source without subwords, not even an end symbol, stays empty.
        """
        lengths = [len(ids) - head - 1 for ids, head in zip(sources, heads, strict=True)]
        fronts = self.sources(contexts, lengths)
        whole = [
            [*ids[:head], *front, *ids[head:]] if ids else []
            for ids, head, front in zip(sources, heads, fronts, strict=True)
        ]
        return whole, [*map(len, fronts)]

    def _encoded(
        self, vocabulary: Vocabulary, texts: Sequence[Sequence[str]], lengths: Sequence[int]
    ) -> list[list[int]]:
        different = list(dict.fromkeys(text for lines in texts for text in lines))
        ids = dict(zip(different, vocabulary.encode_lines(different), strict=True))
        separator = separator_of(vocabulary.size, self.languages)
        return [
            in_front([ids[text] for text in lines], length, self.context.max_length, separator)
            for lines, length in zip(texts, lengths, strict=True)
        ]

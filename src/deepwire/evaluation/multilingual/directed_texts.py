"""Test sets and training text of every direction: those of a run file, or those at a place on disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from deepwire.data.data_config import CorpusConfig, DataConfig, Role, serves
from deepwire.data.languages import Direction
from deepwire.data.text.corpus import by_reference, corpus_files, directed, read_pairs
from deepwire.data.text.pairs import Pair
from deepwire.errors import DataError, UsageError
from deepwire.evaluation.model_translations import data_section
from deepwire.evaluation.multilingual.direction_names import parse_direction
from deepwire.evaluation.texts import Text


@dataclass(frozen=True)
class DirectedTexts:
    """Parallel text that can be read in any direction between its languages.

    Attributes:
        name: As reports call it.
        corpora: As a run file names them.
        role: Which files of OPUS-100 they stand for.
        more: Further references of the one corpus, in its own direction, each as a corpus with its source.
    """

    name: str
    corpora: tuple[CorpusConfig, ...]
    role: Role = "test"
    more: tuple[CorpusConfig, ...] = ()

    def has(self, direction: Direction) -> bool:
        """Whether there is text for a direction."""
        try:
            return any(
                all(path.exists() for path in corpus_files(corpus, data))
                for data, corpus in self._corpora(direction, self.corpora)
            )
        except DataError:  # a side of a prefix is missing
            return False

    def read(self, direction: Direction) -> tuple[Text, Text]:
        """Source and reference of a direction, whole.

        Raises:
            DataError: There is none, a side is missing or damaged, or a line cannot be used.
        """
        found = self._pairs(direction, self.corpora)
        if not found:
            raise DataError(
                f"{self.name}: no test set for {direction}",
                "leave the direction out, or name others with --test",
            )
        name = f"{self.name} {direction}"
        return (
            Text(f"{name} ({direction.source})", [pair.source for pair in found]),
            Text(f"{name} ({direction.target})", [pair.target for pair in found], self._more(direction)),
        )

    def _more(self, direction: Direction) -> tuple[Text, ...]:
        """Further references; none in the other direction, where they would be sources."""
        own = [one for one in self.more if (one.source, one.target) == tuple(direction)]
        return tuple(
            Text(f"{one.label} ({direction.target})", [pair.target for pair in self._pairs(direction, [one])])
            for one in own
        )

    def _pairs(self, direction: Direction, corpora: Sequence[CorpusConfig]) -> list[Pair]:
        found: list[Pair] = []
        for data, corpus in self._corpora(direction, corpora):
            for pair in read_pairs(corpus, data):
                if pair.fault:
                    raise DataError(
                        f"{corpus.label}:{pair.line}: the pair cannot be used ({pair.fault})",
                        "scoring needs every line; repair it",
                    )
                found.append(pair)
        return found

    def lines(self, language: str, directions: Sequence[Direction]) -> Iterator[str]:
        """Lines in a language from all of these directions that have text in it, read as they are taken."""
        for direction in directions:
            if language not in direction or not self.has(direction):
                continue
            corpora = self._corpora(direction, self.corpora)
            pairs = chain.from_iterable(read_pairs(corpus, data) for data, corpus in corpora)
            for pair in pairs:
                if not pair.fault:
                    yield pair.source if direction.source == language else pair.target

    def _corpora(
        self, direction: Direction, corpora: Sequence[CorpusConfig]
    ) -> list[tuple[DataConfig, CorpusConfig]]:
        """Those of the corpora that have the direction, each as read in it, with the settings to read it."""
        served = [
            # The other languages of a text are not in this direction, and are not to be asked for.
            corpus.model_copy(update={"languages": None, "directions": None})
            for corpus in corpora
            if serves(corpus, direction)
        ]
        if not served:
            return []
        roles: dict[str, object] = {"train": served, self.role: served}
        data = DataConfig.model_validate({"directions": [str(direction)], "on_bad_utf8": "skip", **roles})
        return [(data, corpus) for corpus in directed(data, self.role)]


def texts_of_run(model: str, role: Role) -> DirectedTexts:
    """The test sets or the training text that the run file of a run names.

    Args:
        model: A run directory, with or without ``@checkpoint``.
        role: ``test`` or ``train``.

    Raises:
        UsageError: It is no run directory, or its run file names no such text, or no languages.
        ModelError: Its stored settings are damaged.
    """
    return texts_of(data_section(model), role, model)


def texts_of(data: DataConfig, role: Role, name: str) -> DirectedTexts:
    """The test sets or the training text of a run file, which an error calls `name`.

    Raises:
        UsageError: It names no such text, or no languages.
    """
    corpora = data.corpora().get(role)
    if corpora is None:
        raise UsageError(f"{name}: the run file names no data.{role}", "name the texts with --test")
    called, more = ", ".join(corpus.label for corpus in corpora), list[CorpusConfig]()
    if data.languages is None:  # one direction: say which, so that the text can be read the other way, too
        parse_direction(f"{data.source}-{data.target}")
        if role == "test":
            first, *more = by_reference(corpora[0], data)
            corpora = [first]
        sides = {"source": data.source, "target": data.target}
        corpora, more = ([one.model_copy(update=sides) for one in some] for some in (corpora, more))
    return DirectedTexts(called, tuple(corpora), role, tuple(more))


def texts_at(place: str, role: Role) -> DirectedTexts:
    """The texts at a place: the folder of OPUS-100, or a prefix, in which ``{pair}`` stands for ``de-en``."""
    folder = Path(place)
    if any((folder / part / "supervised").is_dir() for part in ("", "v1.0")):
        return DirectedTexts(place, (CorpusConfig(opus100=folder),), role)
    return DirectedTexts(place, (CorpusConfig(prefix=folder),), role)

"""Test sets of every direction: those of a run, or those at a place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deepwire.data.data_config import CorpusConfig, DataConfig, serves
from deepwire.data.languages import Direction
from deepwire.data.text.corpus import by_reference, corpus_files, directed
from deepwire.errors import DataError, UsageError
from deepwire.evaluation.texts import Text, data_section, usable_pairs


def parse_direction(text: str) -> Direction:
    """Reads `de-en`; a UsageError for what is no direction."""
    try:
        return Direction.parse(str(text))  # Python callers may give a `Direction`, or what is none
    except ValueError as error:
        raise UsageError(str(error), "write source and target language, like de-en or en-zh_CN") from None


@dataclass(frozen=True)
class DirectedTexts:
    """Parallel text that can be read in any direction between its languages.

    Attributes:
        name: As reports call it.
        corpora: As a run file names them.
        more: Further references of the one corpus, in its own direction, each as a corpus with its source.
    """

    name: str
    corpora: tuple[CorpusConfig, ...]
    more: tuple[CorpusConfig, ...] = ()

    def has(self, direction: Direction) -> bool:
        """Whether there is text for a direction."""
        try:
            return any(
                all(path.exists() for path in corpus_files(corpus, data))
                for data, corpus in self._in_direction(direction, self.corpora)
            )
        except DataError:  # a side of a prefix is missing
            return False

    def read(self, direction: Direction) -> tuple[Text, Text]:
        """Source and reference of a direction, whole.

        Raises:
            DataError: There is none, a side is missing or damaged, or a line cannot be used.
        """
        corpora = self._in_direction(direction, self.corpora)
        pairs = [pair for data, corpus in corpora for pair in usable_pairs(corpus, data)]
        if not pairs:
            raise DataError(
                f"{self.name}: no test set for {direction}",
                "leave the direction out, or name others with --test",
            )
        # In the other direction further references would be sources.
        own = [corpus for corpus in self.more if (corpus.source, corpus.target) == tuple(direction)]
        more = [
            Text(f"{corpus.label} ({direction.target})", [pair.target for pair in usable_pairs(part, data)])
            for corpus in own
            for data, part in self._in_direction(direction, [corpus])
        ]
        name = f"{self.name} {direction}"
        return (
            Text(f"{name} ({direction.source})", [pair.source for pair in pairs]),
            Text(f"{name} ({direction.target})", [pair.target for pair in pairs], tuple(more)),
        )

    def _in_direction(
        self, direction: Direction, corpora: Sequence[CorpusConfig]
    ) -> list[tuple[DataConfig, CorpusConfig]]:
        """The corpora that have the direction, each with the settings to read it."""
        served = [
            # The other languages of a text are not in this direction, and are not to be asked for.
            corpus.model_copy(update={"languages": None, "directions": None})
            for corpus in corpora
            if serves(corpus, direction)
        ]
        if not served:
            return []
        section = {"directions": [str(direction)], "on_bad_utf8": "skip", "train": served, "test": served}
        data = DataConfig.model_validate(section)
        return [(data, corpus) for corpus in directed(data, "test")]


def texts_of_run(model: str) -> DirectedTexts:
    """The test sets of a run, with or without `@checkpoint`.

    Raises:
        UsageError: It is no run directory, or its run file names no test set, or no languages.
        ModelError: Its stored settings are damaged.
    """
    return texts_of(data_section(model), model)


def texts_of(data: DataConfig, name: str) -> DirectedTexts:
    """The test sets of a run file, which an error calls `name`.

    Raises:
        UsageError: It names none, or no languages.
    """
    corpora = data.corpora().get("test")
    if corpora is None:
        raise UsageError(f"{name}: the run file names no data.test", "name the texts with --test")
    called, more = ", ".join(corpus.label for corpus in corpora), list[CorpusConfig]()
    if data.languages is None:  # one direction: say which, so that the text can be read the other way, too
        parse_direction(f"{data.source}-{data.target}")
        first, *more = by_reference(corpora[0], data)
        sides = {"source": data.source, "target": data.target}
        corpora, more = ([corpus.model_copy(update=sides) for corpus in part] for part in ([first], more))
    return DirectedTexts(called, tuple(corpora), tuple(more))


def texts_at(place: str) -> DirectedTexts:
    """The test sets at a place: the folder of OPUS-100, or a prefix, in which `{pair}` stands for `de-en`."""
    folder = Path(place)
    is_opus100 = any((folder / part / "supervised").is_dir() for part in ("", "v1.0"))
    corpus = CorpusConfig(opus100=folder) if is_opus100 else CorpusConfig(prefix=folder)
    return DirectedTexts(place, (corpus,))

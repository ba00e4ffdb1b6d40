"""Texts of every direction: test sets, training text, and translations kept in a folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from deepwire.data.data_config import CorpusConfig, DataConfig, Role, serves
from deepwire.data.languages import Direction
from deepwire.data.text.corpus import by_reference, corpus_files, directed, read_pairs
from deepwire.data.text.pairs import Pair
from deepwire.errors import DataError, ResourceError, UsageError
from deepwire.evaluation.multilingual.direction_names import parse_direction
from deepwire.evaluation.texts import Text, data_section, read_text, write_lines
from deepwire.io.atomic import write_json
from deepwire.io.output import COMPRESSED_SUFFIXES
from deepwire.io.regular_files import read_regular


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
        pairs = self._pairs(direction, self.corpora)
        if not pairs:
            raise DataError(
                f"{self.name}: no test set for {direction}",
                "leave the direction out, or name others with --test",
            )
        name = f"{self.name} {direction}"
        return (
            Text(f"{name} ({direction.source})", [pair.source for pair in pairs]),
            Text(f"{name} ({direction.target})", [pair.target for pair in pairs], self._more(direction)),
        )

    def _more(self, direction: Direction) -> tuple[Text, ...]:
        """Further references; none in the other direction, where they would be sources."""
        corpora = [corpus for corpus in self.more if (corpus.source, corpus.target) == tuple(direction)]
        return tuple(
            Text(
                f"{more.label} ({direction.target})", [pair.target for pair in self._pairs(direction, [more])]
            )
            for more in corpora
        )

    def _pairs(self, direction: Direction, corpora: Sequence[CorpusConfig]) -> list[Pair]:
        pairs: list[Pair] = []
        for data, corpus in self._corpora(direction, corpora):
            for pair in read_pairs(corpus, data):
                if pair.fault:
                    raise DataError(
                        f"{corpus.label}:{pair.line}: the pair cannot be used ({pair.fault})",
                        "scoring needs every line; repair it",
                    )
                pairs.append(pair)
        return pairs

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
        """The corpora that have the direction, each with the settings to read it."""
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
        corpora, more = ([corpus.model_copy(update=sides) for corpus in part] for part in (corpora, more))
    return DirectedTexts(called, tuple(corpora), role, tuple(more))


def texts_at(place: str, role: Role) -> DirectedTexts:
    """The texts at a place: the folder of OPUS-100, or a prefix, in which ``{pair}`` stands for ``de-en``."""
    folder = Path(place)
    if any((folder / part / "supervised").is_dir() for part in ("", "v1.0")):
        return DirectedTexts(place, (CorpusConfig(opus100=folder),), role)
    return DirectedTexts(place, (CorpusConfig(prefix=folder),), role)


HYPOTHESES = ".hyp"
RECORD = "system.json"


@dataclass
class StoredTranslations:
    """A folder of translations.

    Attributes:
        folder: Where it is.
        system: What made the translations; the folder's name if nobody wrote it down.
        trained: Directions the system was trained on; None if nobody wrote it down.
        training_pairs: Pairs of each direction in its training text, where known.
        made: For each direction what its file was made from, see ``fingerprint``.
    """

    folder: Path
    system: str
    trained: tuple[Direction, ...] | None = None
    training_pairs: Mapping[Direction, int] = field(default_factory=dict)
    made: dict[str, str] = field(default_factory=dict)

    def path(self, direction: Direction) -> Path | None:
        """The file of a direction, plain or compressed; None if there is none."""
        for suffix in ("", *COMPRESSED_SUFFIXES):
            if (path := self.folder / f"{direction}{HYPOTHESES}{suffix}").exists():
                return path
        return None

    def names(self) -> list[str]:
        """The directions with a file, as their files are called."""
        endings = [HYPOTHESES + suffix for suffix in ("", *COMPRESSED_SUFFIXES)]
        names = {
            path.name.removesuffix(ending)
            for path in self.folder.iterdir()
            for ending in endings
            if path.name.endswith(ending)
        }
        return sorted(names)

    def directions(self) -> tuple[Direction, ...]:
        """The directions with a file.

        Raises:
            UsageError: A file is not called after one.
        """
        names = self.names()
        try:
            return tuple(map(Direction.parse, names))
        except ValueError as error:
            raise UsageError(
                f"{self.folder}: {error}", f"each file is called after its direction: en-de{HYPOTHESES}"
            ) from None

    def kept(self, direction: Direction, made: str) -> list[str] | None:
        """The translation of a direction if it was made from just that; None if it has to be made again."""
        path = self.path(direction)
        if path is None or self.made.get(str(direction)) != made:
            return None
        return read_text(path).lines

    def keep(self, direction: Direction, lines: Sequence[str], made: str) -> None:
        """Write the translation of a direction; the record says what it was made from only afterwards.

        Raises:
            ResourceError: It cannot be written.
        """
        self.made.pop(str(direction), None)
        self._write_record()
        write_lines(self.folder / f"{direction}{HYPOTHESES}", lines)
        self.made[str(direction)] = made
        self._write_record()

    def _write_record(self) -> None:
        record = {
            "system": self.system,
            "trained": None if self.trained is None else list(map(str, self.trained)),
            "training_pairs": {str(direction): size for direction, size in self.training_pairs.items()},
            "made": self.made,
        }
        write_json(self.folder / RECORD, record)


def read_stored(folder: Path) -> StoredTranslations:
    """A folder of translations, with its record if it has one.

    Raises:
        DataError: The record is damaged.
    """
    path = folder / RECORD
    if not path.exists():
        return StoredTranslations(folder, str(folder))
    try:
        record = json.loads(read_regular(path))
        return StoredTranslations(
            folder,
            str(record["system"]),
            None if record["trained"] is None else tuple(map(Direction.parse, record["trained"])),
            {Direction.parse(name): int(size) for name, size in record["training_pairs"].items()},
            {str(name): str(made) for name, made in record["made"].items()},
        )
    except OSError as error:
        raise DataError(f"{path}: cannot read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise DataError(
            f"{path}: is damaged", "remove it; the translations beside it can be scored without it"
        ) from None


def store_in(
    folder: Path, system: str, trained: Sequence[Direction] | None, training_pairs: Mapping[Direction, int]
) -> StoredTranslations:
    """A folder to keep the translations of a system in; translations that are there already are found again.

    Raises:
        UsageError: It holds translations that no record describes.
        ResourceError: It cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResourceError(f"{folder}: cannot make the folder: {error.strerror or error}") from None
    stored = read_stored(folder)
    if stored.names() and not (folder / RECORD).exists():
        raise UsageError(
            f"{folder}: holds translations ({stored.names()[0]}{HYPOTHESES}) of unknown origin",
            "name another folder; nothing there was changed",
        )
    stored.system = system
    stored.trained = None if trained is None else tuple(trained)
    stored.training_pairs = dict(training_pairs)
    return stored


def fingerprint(parts: Sequence[object], lines: Sequence[str]) -> str:
    """A digest of everything a translation depends on: model, settings, source lines."""
    text = json.dumps([*map(str, parts), *lines], ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()

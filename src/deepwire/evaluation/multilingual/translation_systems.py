"""Systems to evaluate: a model, stored translations, or a model or file for each direction."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from deepwire.checkpoint.model_files import MANIFEST, fingerprint
from deepwire.checkpoint.model_path import find_model
from deepwire.checkpoint.store import CONFIG, read_metadata
from deepwire.data.languages import Direction, Languages, known_directions
from deepwire.errors import ModelError, Tell, UsageError
from deepwire.evaluation.multilingual.directed_texts import HYPOTHESES, StoredTranslations, read_stored
from deepwire.evaluation.multilingual.direction_names import languages_of
from deepwire.evaluation.texts import SearchSettings, Text, read_text, selected_target

if TYPE_CHECKING:
    from deepwire.decoding.translator import Translator


@dataclass(frozen=True)
class ModelDescription:
    """The languages of a model.

    Attributes:
        folder: The model directory that its name stands for.
        directions: What it was trained on.
        languages: Those of a model of many directions, which takes a target language; None otherwise.
        training_pairs: Pairs of each direction in the training text, where known.
    """

    folder: Path
    directions: tuple[Direction, ...]
    languages: Languages | None = None
    training_pairs: Mapping[Direction, int] = field(default_factory=dict)


def describe(name: str) -> ModelDescription:
    """The languages of a MODEL.

    Raises:
        ModelError: There is no such model, or its description is damaged.
    """
    folder = find_model(name)
    metadata = read_metadata(folder)
    directions, languages = known_directions(metadata), Languages.from_metadata(metadata)
    if not directions:
        raise ModelError(f"{folder / CONFIG}: does not name the languages of the model")
    return ModelDescription(
        folder, directions, languages, {} if languages is None else _training_pairs(metadata)
    )


def _training_pairs(metadata: Mapping[str, object]) -> dict[Direction, int]:
    """Pairs of each direction; none where an earlier version of training did not record them."""
    pairs = metadata.get("training_pairs")
    if not isinstance(pairs, dict):
        return {}
    return {Direction.parse(name): size for name, size in pairs.items() if isinstance(size, int)}


_FIELD = re.compile(r"\{(direction|source|target)\}")


class System(ABC):
    """Something that has a translation for directions.

    Attributes:
        name: As tables call it.
        trained: The directions it was trained on; None if that is not known.
        training_pairs: Pairs of each direction in its training text, where known.
        languages: The languages it knows, sorted; empty if that is not known.
    """

    name: str
    trained: tuple[Direction, ...] | None = None
    training_pairs: Mapping[Direction, int]
    languages: tuple[str, ...] = ()

    @abstractmethod
    def check(self, direction: Direction) -> None:
        """Check that there will be a translation of a direction, before any is made.

        Raises:
            UsageError: The system does not translate this direction.
            ModelError: The model for it is missing or damaged.
        """

    @abstractmethod
    def translate(self, direction: Direction, source: Text) -> Text:
        """The translation of a text, line by line.

        Raises:
            DataError, ModelError, ResourceError, UsageError: What it needs is missing or damaged.
        """

    def made_from(self, direction: Direction) -> Sequence[object] | None:
        """The inputs of its translations besides the source; None if they are never to be kept."""
        del direction
        return None

    def available(self) -> tuple[Direction, ...] | None:
        """The directions to evaluate when nobody says which; None if that is not known."""
        return self.trained


def open_system(name: str, settings: SearchSettings, warn: Tell) -> System:
    """The system that a name on the command line stands for.

    Args:
        name: A MODEL; a folder with files ``DIRECTION.hyp``; or a pattern with ``{direction}``, or with
            ``{source}`` and ``{target}``, of files or of models.
        settings: How and where models translate.
        warn: Receives warnings, one line each.

    Raises:
        UsageError: The pattern is wrong.
        ModelError: There is no such model.
        DataError: The record of a folder is damaged.
    """
    if "{" in name:
        return PatternSystem(name, settings, warn)
    folder = Path(name)
    if folder.is_dir() and (stored := read_stored(folder)).names():
        return StoredSystem(stored)
    return ModelSystem(name, settings, warn)


class StoredSystem(System):
    """Translations in a folder."""

    def __init__(self, stored: StoredTranslations) -> None:
        self._stored = stored
        self.name = stored.system
        self._present, self.trained = stored.directions(), stored.trained
        self.languages = tuple(languages_of([*self._present, *(self.trained or ())]))
        self.training_pairs = stored.training_pairs

    def available(self) -> tuple[Direction, ...]:
        """Every direction that has a file."""
        return self._present

    def check(self, direction: Direction) -> None:
        """Check that there is a file."""
        self._path(direction)

    def translate(self, direction: Direction, source: Text) -> Text:
        """Read the file of the direction; the source is not needed."""
        del source
        return read_text(self._path(direction))

    def _path(self, direction: Direction) -> Path:
        path = self._stored.path(direction)
        if path is None:
            raise UsageError(
                f"{self._stored.folder}: no translation {direction}{HYPOTHESES}",
                f"it has {', '.join(map(str, self._present))}; choose with --directions",
            )
        return path


class ModelSystem(System):
    """One model, of two languages or of many; read when the first direction is translated."""

    def __init__(self, name: str, settings: SearchSettings, warn: Tell) -> None:
        self.name, self._settings, self._warn = name, settings, warn
        self._description = describe(name)
        self.trained = self._description.directions
        self.training_pairs = self._description.training_pairs
        self.languages = tuple(languages_of(self.trained))
        self._translator: Translator | None = None

    def check(self, direction: Direction) -> None:
        """Check that the model knows both languages, and that it writes the target language."""
        selected_target(self.name, direction)

    def translate(self, direction: Direction, source: Text) -> Text:
        """Translate a text."""
        from deepwire.decoding.model_loading import load  # torch; late, so that wrong files are found before

        if self._translator is None:
            where = self._settings
            self._translator = load(
                self.name,
                where.device,
                where.precision,
                settings=where.decoding,
                warn=self._warn,
                shortlist=where.shortlist,
            )
        to = None if self._description.languages is None else direction.target
        lines = self._translator.translate(source.lines, to=to)
        return Text(f"{self.name} {direction}", lines, precision=self._translator.precision)

    def made_from(self, direction: Direction) -> Sequence[object] | None:
        """The files of the model, the direction and the settings."""
        folder = self._description.folder
        if not (folder / MANIFEST).exists():
            return None
        settings = sorted(self._settings.decoding.items())
        return [fingerprint(folder), direction, settings, self._settings.precision, *self._words()]

    def _words(self) -> Sequence[object]:
        """The fingerprint of the shortlist, where there is one."""
        if not self._settings.shortlist:
            return []
        from deepwire.decoding.shortlist import shortlist_folder  # torch

        folder = shortlist_folder(self._settings.shortlist, self._description.folder)
        return [] if folder is None or not folder.is_dir() else [fingerprint(folder)]


class PatternSystem(System):
    """A file or a model for each direction, such as bilingual models side by side."""

    def __init__(self, pattern: str, settings: SearchSettings, warn: Tell) -> None:
        if re.search(r"[{}]", re.sub(_FIELD, "", pattern)):
            raise UsageError(f"{pattern}: unknown field", "the fields are {direction}, {source} and {target}")
        self.name, self._settings, self._warn = pattern, settings, warn
        self.training_pairs = {}

    def check(self, direction: Direction) -> None:
        """Check that there is a file or a model that translates the direction."""
        if not self._place(direction).is_file():
            self._model(direction).check(direction)

    def translate(self, direction: Direction, source: Text) -> Text:
        """Read the file of the direction, or translate with its model, which is given up afterwards."""
        path = self._place(direction)
        if path.is_file():
            return read_text(path)
        return self._model(direction).translate(direction, source)

    def made_from(self, direction: Direction) -> Sequence[object] | None:
        """The inputs of the model; a file is not kept a second time."""
        if self._place(direction).is_file():
            return None
        return self._model(direction).made_from(direction)

    def _place(self, direction: Direction) -> Path:
        values = {"direction": str(direction), "source": direction.source, "target": direction.target}
        return Path(re.sub(_FIELD, lambda match: values[match[1]], self.name))

    def _model(self, direction: Direction) -> ModelSystem:
        name = str(self._place(direction))
        try:
            return ModelSystem(name, self._settings, self._warn)
        except ModelError as error:
            raise ModelError(f"{direction}: {error.message}", error.hint) from None

"""Systems to evaluate: a model, stored translations, or a model or file for each direction."""

from __future__ import annotations

import hashlib
import json
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
from deepwire.errors import DataError, LogFn, ModelError, UsageError
from deepwire.evaluation.multilingual.direction_names import languages_of
from deepwire.evaluation.texts import SearchSettings, Text, read_text, selected_target, write_lines
from deepwire.io.atomic import disk_errors, write_json
from deepwire.io.output import COMPRESSED_SUFFIXES
from deepwire.io.regular_files import read_regular

if TYPE_CHECKING:
    from deepwire.decoding.translator import Translator

HYPOTHESES = ".hyp"
RECORD = "system.json"
_ENDINGS = [HYPOTHESES + suffix for suffix in ("", *COMPRESSED_SUFFIXES)]


@dataclass
class StoredTranslations:
    """A folder of translations.

    Attributes:
        folder: Where it is.
        system: Made the translations; the folder's name if nobody wrote it down.
        trained: Directions the system was trained on; None if nobody wrote it down.
        training_pairs: Pairs of each direction in its training text, where known.
        made: The digest of what the file of each direction was made from, see `digest_of`.
    """

    folder: Path
    system: str
    trained: tuple[Direction, ...] | None = None
    training_pairs: Mapping[Direction, int] = field(default_factory=dict)
    made: dict[str, str] = field(default_factory=dict)

    def path(self, direction: Direction) -> Path | None:
        """The file of a direction, plain or compressed; None if there is none."""
        paths = (self.folder / f"{direction}{ending}" for ending in _ENDINGS)
        return next((path for path in paths if path.exists()), None)

    def names(self) -> list[str]:
        """The directions with a file, as their files are called."""
        names = [path.name for path in self.folder.iterdir()]
        return sorted({name.removesuffix(end) for name in names for end in _ENDINGS if name.endswith(end)})

    def directions(self) -> tuple[Direction, ...]:
        """The directions with a file; a UsageError where a file is not called after one."""
        try:
            return tuple(map(Direction.parse, self.names()))
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
        """Writes the translation of a direction; the record says what it was made from only afterwards."""
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
    """A folder of translations, with its record if it has one; a DataError where that is damaged."""
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
    """A folder to keep the translations of a system in, with those that are there already.

    Raises:
        UsageError: It holds translations that no record describes.
        ResourceError: It cannot be made.
    """
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
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


def digest_of(parts: Sequence[object], lines: Sequence[str]) -> str:
    """A digest of everything a translation depends on: model, settings, source lines."""
    text = json.dumps([*map(str, parts), *lines], ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


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
    training_pairs: Mapping[Direction, int] = {}
    languages: tuple[str, ...] = ()

    @abstractmethod
    def check(self, direction: Direction) -> None:
        """Raises a UsageError or ModelError where there would be no translation, before any is made."""

    @abstractmethod
    def translate(self, direction: Direction, source: Text) -> Text:
        """The translation of a text, line by line."""

    def made_from(self, direction: Direction) -> Sequence[object] | None:
        """The inputs of its translations besides the source; None if they are never to be kept."""
        del direction
        return None

    def available(self) -> tuple[Direction, ...] | None:
        """The directions to evaluate when nobody says which; None if that is not known."""
        return self.trained


def open_system(name: str, settings: SearchSettings, warn: LogFn) -> System:
    """The system that a name on the command line stands for.

    Args:
        name: A MODEL; a folder with files `DIRECTION.hyp`; or a pattern with `{direction}`, or with
            `{source}` and `{target}`, of files or of models.
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
        self.name, self.trained, self.training_pairs = stored.system, stored.trained, stored.training_pairs
        self._present = stored.directions()
        self.languages = tuple(languages_of([*self._present, *(self.trained or ())]))

    def available(self) -> tuple[Direction, ...]:
        """Every direction that has a file."""
        return self._present

    def check(self, direction: Direction) -> None:
        """Raises a UsageError where there is no file."""
        self._path(direction)

    def translate(self, direction: Direction, source: Text) -> Text:
        """Reads the file of the direction."""
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

    def __init__(self, name: str, settings: SearchSettings, warn: LogFn) -> None:
        self.name, self._settings, self._warn = name, settings, warn
        self._folder = find_model(name)
        metadata = read_metadata(self._folder)
        self.trained = known_directions(metadata)
        if not self.trained:
            raise ModelError(f"{self._folder / CONFIG}: does not name the languages of the model")
        self._many = Languages.from_metadata(metadata) is not None
        pairs = metadata.get("training_pairs") if self._many else None
        if isinstance(pairs, dict):  # an earlier version of training did not record them
            sizes = {Direction.parse(name): size for name, size in pairs.items() if isinstance(size, int)}
            self.training_pairs = sizes
        self.languages = tuple(languages_of(self.trained))
        self._translator: Translator | None = None

    def check(self, direction: Direction) -> None:
        """Raises an error where the model does not know a language, or does not write the target language."""
        selected_target(self.name, direction)

    def translate(self, direction: Direction, source: Text) -> Text:
        """Translates a text."""
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
        lines = self._translator.translate(source.lines, to=direction.target if self._many else None)
        return Text(f"{self.name} {direction}", lines, precision=self._translator.precision)

    def made_from(self, direction: Direction) -> Sequence[object] | None:
        """The files of the model and of its shortlist, the direction and the settings."""
        if not (self._folder / MANIFEST).exists():
            return None
        settings = sorted(self._settings.decoding.items())
        made: list[object] = [fingerprint(self._folder), direction, settings, self._settings.precision]
        if self._settings.shortlist:
            from deepwire.decoding.shortlist import shortlist_folder  # torch

            folder = shortlist_folder(self._settings.shortlist, self._folder)
            made += [] if folder is None or not folder.is_dir() else [fingerprint(folder)]
        return made


_FIELD = re.compile(r"\{(direction|source|target)\}")


class PatternSystem(System):
    """A file or a model for each direction, such as bilingual models side by side."""

    def __init__(self, pattern: str, settings: SearchSettings, warn: LogFn) -> None:
        if re.search(r"[{}]", re.sub(_FIELD, "", pattern)):
            raise UsageError(f"{pattern}: unknown field", "the fields are {direction}, {source} and {target}")
        self.name, self._settings, self._warn = pattern, settings, warn

    def check(self, direction: Direction) -> None:
        """Raises an error where there is no file, and no model that translates the direction."""
        if not self._place(direction).is_file():
            self._model(direction).check(direction)

    def translate(self, direction: Direction, source: Text) -> Text:
        """Reads the file of the direction, or translates with its model, which is given up afterwards."""
        path = self._place(direction)
        return read_text(path) if path.is_file() else self._model(direction).translate(direction, source)

    def made_from(self, direction: Direction) -> Sequence[object] | None:
        """The inputs of the model; a file is not kept a second time."""
        return None if self._place(direction).is_file() else self._model(direction).made_from(direction)

    def _place(self, direction: Direction) -> Path:
        values = {"direction": str(direction), "source": direction.source, "target": direction.target}
        return Path(re.sub(_FIELD, lambda match: values[match[1]], self.name))

    def _model(self, direction: Direction) -> ModelSystem:
        try:
            return ModelSystem(str(self._place(direction)), self._settings, self._warn)
        except ModelError as error:
            raise ModelError(f"{direction}: {error.message}", error.hint) from None

"""Translations in a folder: ``DIRECTION.hyp`` for each direction, and what made them in ``system.json``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deepwire.data.languages import Direction
from deepwire.errors import DataError, ResourceError, UsageError
from deepwire.evaluation.model_translations import write_lines
from deepwire.evaluation.texts import read_text
from deepwire.io.atomic import write_json
from deepwire.io.output import COMPRESSED_SUFFIXES

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
        record = json.loads(path.read_bytes())
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

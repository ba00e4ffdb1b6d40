"""Numbers of parts that are done, kept in a folder so that an interrupted analysis goes on where it was."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deepwire.errors import ModelError
from deepwire.io.atomic import disk_errors, write_json
from deepwire.io.regular_files import read_json

Settings = Mapping[str, str | int | float | bool | None]


class MeasurementCache:
    """Records by name, each with the settings it was measured with.

    Args:
        folder: Made when the first record is written.
        settings: Everything that decides the numbers; a record made with others counts as not there.
    """

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder, self._settings = folder, dict(settings)

    def get(self, name: str) -> dict[str, object] | None:
        """The record of that name; None where there is none, or it is damaged or of other settings."""
        path = self.path(name)
        if not path.exists():
            return None
        try:
            stored = read_json(path)
        except ModelError:
            return None
        record = stored.get("record")
        if stored.get("settings") != self._settings or not isinstance(record, dict):
            return None
        return record

    def put(self, name: str, record: Mapping[str, object]) -> None:
        """Keep a record, in one step.

        Raises:
            ResourceError: It cannot be written.
        """
        with disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.path(name), {"settings": self._settings, "record": dict(record)})

    def path(self, name: str) -> Path:
        """The file of a record."""
        return self.folder / f"{name}.json"

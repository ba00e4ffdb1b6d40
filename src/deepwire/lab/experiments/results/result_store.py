"""What has been done of a plan, by name, as long as the run file trains the same on the same text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from deepwire.config.counts import few
from deepwire.config.section import flatten, written
from deepwire.data.data_config import CorpusConfig, DataConfig
from deepwire.data.prepare.prepared import text_digest
from deepwire.data.vocabulary_config import ExistingConfig, SubwordNmtConfig
from deepwire.errors import DataError
from deepwire.lab.subject.measurement_cache import MeasurementCache
from deepwire.runfile import LoadedRunFile, completed

_FILES = {
    name
    for section in (CorpusConfig, SubwordNmtConfig, ExistingConfig)
    for name, field in section.model_fields.items()
    if Path in (field.annotation, *get_args(field.annotation))
}
"""Settings of a corpus or a vocabulary that name a file or a folder."""


class ResultStore:
    """Records of one kind, each with the settings of its run and a digest of its text.

    Args:
        folder: Made when the first record is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._records = folder, MeasurementCache(folder, {})
        self._digests: dict[str, str | None] = {}

    def get(self, name: str, run: LoadedRunFile) -> dict[str, object] | None:
        """What was kept by that name, if its run had the settings of `run` and read the same text.

        The text may lie elsewhere now. Where there is no digest to compare, of a text that cannot be read
        or in a record of an earlier version, it has to lie where it did.
        """
        match self._records.get(name):
            case {"settings": dict(settings), "found": dict(record), **others}:
                before, now = others.get("text"), self._digest(run)
                known = before is not None and now is not None
                alike = before == now and same(settings, run.resolved, anywhere=True)
                return record if (alike if known else same(settings, run.resolved)) else None
            case _:
                return None

    def difference(self, name: str, run: LoadedRunFile) -> str:
        """How the run of a record that `get` does not give differs; empty without a record of that name."""
        match self._records.get(name):
            case {"settings": dict(settings)} if self.get(name, run) is None:
                before, now = (
                    flatten(decisive(completed(each), anywhere=True)) for each in (settings, run.resolved)
                )
                changes = [
                    f"{key}={written(before.get(key))}, now {written(now.get(key))}"
                    for key in sorted(before.keys() | now.keys())
                    if before.get(key) != now.get(key)
                ]
                return f"measured with {few(changes)}" if changes else "measured on another text"
            case _:
                return ""

    def put(self, name: str, run: LoadedRunFile, values: Mapping[str, object]) -> None:
        """Keep what was measured with a run, in one step.

        Raises:
            ResourceError: It cannot be written.
        """
        record = {"settings": dict(run.resolved), "text": self._digest(run), "found": dict(values)}
        self._records.put(name, record)

    def _digest(self, run: LoadedRunFile) -> str | None:
        """Of the text of a run; None if it cannot be read. Plans have many runs on few texts."""
        data = run.config.data
        name = data.model_dump_json()
        if name not in self._digests:
            self._digests[name] = _readable_digest(data)
        return self._digests[name]


def _readable_digest(data: DataConfig) -> str | None:
    try:
        return text_digest(data)
    except DataError:
        return None


def same(before: Mapping[str, object], now: Mapping[str, object], *, anywhere: bool = False) -> bool:
    """Whether two run files train the same; settings that an earlier version did not have are defaults.

    Args:
        before: Settings of one.
        now: Settings of the other.
        anywhere: Wherever their text lies.
    """

    def alike(first: Mapping[str, object], other: Mapping[str, object]) -> bool:
        return decisive(first, anywhere=anywhere) == decisive(other, anywhere=anywhere)

    return alike(before, now) or alike(completed(before), completed(now))


def decisive(resolved: Mapping[str, object], *, anywhere: bool = False) -> dict[str, object]:
    """A run file without what does not change a run: where it and the prepared text are kept, notes.

    Args:
        resolved: All settings of a run file.
        anywhere: Leave out where the text lies as well.
    """
    kept = {name: value for name, value in resolved.items() if name not in ("recipe", "run")}
    data = kept.get("data")
    if isinstance(data, dict):
        data = {name: value for name, value in data.items() if name != "prepared"}
        kept["data"] = _without_files(data) if anywhere else data
    return kept


def _without_files(value: object) -> object:
    if isinstance(value, dict):
        return {
            name: _without_files(entry)
            for name, entry in value.items()
            if not (name in _FILES and isinstance(entry, str))
        }
    return [_without_files(entry) for entry in value] if isinstance(value, list) else value

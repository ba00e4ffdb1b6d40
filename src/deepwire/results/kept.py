"""What has been done of a plan, by name, as long as the run file trains the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deepwire.analysis.measured import Measured
from deepwire.runfile import LoadedRunFile, completed


class Kept:
    """Records of one kind, each with the settings of its run.

    Args:
        folder: Made when the first record is written.
    """

    def __init__(self, folder: Path) -> None:
        self._records = Measured(folder, {})

    def get(self, name: str, run: LoadedRunFile) -> dict[str, object] | None:
        """What was kept by that name, if the settings of its run were those of `run`."""
        record = self._records.get(name)
        match record:
            case {"settings": dict(settings), "found": dict(found)} if same(settings, run.resolved):
                return found
            case _:
                return None

    def put(self, name: str, run: LoadedRunFile, found: Mapping[str, object]) -> None:
        """Keep what was found with a run, in one step.

        Raises:
            ResourceError: It cannot be written.
        """
        self._records.put(name, {"settings": dict(run.resolved), "found": dict(found)})


def same(before: Mapping[str, object], now: Mapping[str, object]) -> bool:
    """Whether two run files train the same; settings that an earlier version did not have are defaults."""
    return decisive(before) == decisive(now) or decisive(completed(before)) == decisive(completed(now))


def decisive(resolved: Mapping[str, object]) -> dict[str, object]:
    """A run file without what does not change a run: where it and the prepared text are kept, notes."""
    kept = {name: value for name, value in resolved.items() if name not in ("recipe", "run")}
    data = kept.get("data")
    if isinstance(data, dict):
        kept["data"] = {name: value for name, value in data.items() if name != "prepared"}
    return kept

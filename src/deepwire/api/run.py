"""A run directory from Python: its model, its history, its best checkpoint."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from deepwire.analysis.subject.run_records import read_records
from deepwire.checkpoint.run_directory import Checkpoint, RunDirectory
from deepwire.errors import UsageError
from deepwire.io.regular_files import read_json
from deepwire.training.run.stop_reason import StopReason

if TYPE_CHECKING:
    from deepwire.api.model import Model


class Run:
    """A run directory. It can stand for its path: ``deepwire.load(run)`` loads its best model.

    Args:
        path: The run directory.
        stop_reason: Why its training ended just now; default: what the directory says.
        nothing_to_do: What to tell a user where the run was complete before.

    Attributes:
        path: The run directory.
        nothing_to_do: Why nothing was trained; None where something was.

    Raises:
        UsageError: There is no such run.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        stop_reason: StopReason | None = None,
        nothing_to_do: str | None = None,
    ) -> None:
        self.path = Path(path)
        self.nothing_to_do = nothing_to_do
        self._directory = RunDirectory(self.path)
        self._stop_reason = stop_reason
        known = (
            stop_reason is not None or nothing_to_do is not None
        )  # perhaps where only another process sees it
        if not known and not self._directory.resolved_config.exists():
            raise UsageError(f"{self.path}: no such run", "give the run directory of a training")

    def __fspath__(self) -> str:
        """The run directory."""
        return str(self.path)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @cached_property
    def model(self) -> Model:
        """The model of the best checkpoint, for translation, on a GPU if there is one; loaded once.

        Raises:
            ModelError: There is no checkpoint, or it is damaged.
        """
        from deepwire.api.model import load

        return load(self.path)

    @property
    def history(self) -> list[dict[str, object]]:
        """All records of ``metrics.jsonl`` in order, validations with ``kind`` ``valid``, others ``train``.

        Raises:
            DataError: The file is damaged.
        """
        return [dict(record) for record in read_records(self._directory.metrics)]

    @property
    def best(self) -> Checkpoint | None:
        """The best checkpoint: ``path``, ``update``, ``scores``; the newest where nothing was scored."""
        return self._directory.best()

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """All checkpoints that are kept, the oldest first."""
        return self._directory.checkpoints()

    @property
    def settings(self) -> dict[str, object]:
        """All settings of the run, defaults included.

        Raises:
            ModelError: The file is damaged.
        """
        return read_json(self._directory.resolved_config)

    @property
    def stop_reason(self) -> StopReason | None:
        """Why its training ended; None where that is not known: it goes on, or was interrupted before."""
        if self._stop_reason is None and self._directory.done.exists():
            return StopReason(str(read_json(self._directory.done).get("reason")), finished=True)
        return self._stop_reason

"""TensorBoard events, an extra beside metrics.jsonl."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from deepwire.errors import UsageError


class EventWriter(Protocol):
    """Takes named numbers of an update."""

    def write(self, kind: str, update: int, values: dict[str, float]) -> None:
        """Record ``values`` under ``kind/name`` at ``update``."""

    def close(self) -> None:
        """Flush and close."""


class NoEvents:
    """Records nothing."""

    def write(self, kind: str, update: int, values: dict[str, float]) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class TensorBoardEvents:
    """Writes event files for TensorBoard.

    Args:
        folder: Where they go.
        after: Events of later updates are hidden; they belong to an interrupted part of the run.

    Raises:
        UsageError: If TensorBoard is not installed.
    """

    def __init__(self, folder: Path, after: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UsageError(
                "training.tensorboard is true, but TensorBoard is not installed",
                "pip install 'deepwire[tensorboard]', or set training.tensorboard to false",
            ) from error
        self._writer = SummaryWriter(str(folder), purge_step=after + 1)

    def write(self, kind: str, update: int, values: dict[str, float]) -> None:
        """Record ``values`` under ``kind/name`` at ``update``."""
        for name, value in values.items():
            self._writer.add_scalar(f"{kind}/{name}", value, update)

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()

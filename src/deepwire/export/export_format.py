"""What a format of another program must offer; `docs/exporting.md` says how to add one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from deepwire.checkpoint.store import LoadedModel


class ExportedModel(ABC):
    """A model as the other program has read it, to be compared with ours; text is segmented already."""

    @abstractmethod
    def translate(self, sources: Sequence[Sequence[str]], longest: int) -> list[list[str]]:
        """The greedy translation of each source, as subwords; neither holds UNK, and no EOS is given."""

    @abstractmethod
    def score(self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]) -> list[list[float]]:
        """Natural log-probability of each subword of each target and of EOS."""


class ExportFormat(ABC):
    """A format to export to.

    Attributes:
        name: As in `--to`.
        quantizations: Number formats of weights that it can store, the one as they are first.
    """

    name: str
    quantizations: tuple[str, ...]

    @abstractmethod
    def require(self, model: LoadedModel) -> None:
        """See that a model can be written, and that what writes it is installed.

        Raises:
            ModelError: The format has no such model; names what it lacks.
            UsageError: A library is not installed.
        """

    @abstractmethod
    def write(self, model: LoadedModel, folder: Path, quantization: str) -> None:
        """Write a model that `require` let pass into an empty folder, with all that it needs."""

    @abstractmethod
    def read(self, folder: Path) -> ExportedModel:
        """The model of a folder that `write` has filled, read by the other program."""

    @abstractmethod
    def version(self) -> str:
        """The other program and its version."""

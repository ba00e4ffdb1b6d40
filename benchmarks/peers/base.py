"""What the comparison needs of a toolkit: write its configuration, run its command, read its log."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Task:
    """One model and one batch size, the same for every toolkit: a pre-norm Transformer, tied embeddings."""

    name: str
    layers: int
    d_model: int
    d_ffn: int
    heads: int
    vocabulary: int
    batch_tokens: int = 4096
    dropout: float = 0.1
    label_smoothing: float = 0.1
    source: str = "de"
    target: str = "en"


TASKS = {
    "small": Task("small", layers=3, d_model=256, d_ffn=1024, heads=4, vocabulary=10_000),
    "deep": Task("deep", layers=12, d_model=256, d_ffn=1024, heads=4, vocabulary=10_000),
    "base": Task("base", layers=6, d_model=512, d_ffn=2048, heads=8, vocabulary=10_000),
    # Of 32,000 subwords 26,777 occur in the text once it is segmented.
    "base-32k": Task("base-32k", layers=6, d_model=512, d_ffn=2048, heads=8, vocabulary=32_000),
}


@dataclass(frozen=True)
class Reading:
    """A line of a toolkit's log: at this time, so many updates and real target tokens had been trained on."""

    update: int
    seconds: float
    target_tokens: float


class Toolkit(ABC):
    """One side of the comparison, run as its users run it: through its command line.

    Args:
        python: The interpreter of the environment that it is installed in.
    """

    name: str

    def __init__(self, python: Path) -> None:
        self.python = python

    @property
    @abstractmethod
    def version_code(self) -> str:
        """Python code that prints the versions."""

    @abstractmethod
    def prepare(self, folder: Path, task: Task, corpus: Path) -> None:
        """Write what runs need into `folder`; corpus + ".de" and ".en" hold a sentence a line, in words."""

    @abstractmethod
    def command(self, folder: Path, updates: int, log_every: int, run: Path) -> list[str]:
        """The command that trains for so many updates, writing to the folder `run`."""

    @abstractmethod
    def readings(self, output: str, run: Path) -> list[Reading]:
        """What the log of a finished run says."""

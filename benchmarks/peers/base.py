"""A toolkit as the comparisons need it: its configuration, its commands, its log, its translations."""

from __future__ import annotations

import re
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


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


@dataclass(frozen=True)
class Request:
    """The search that is asked for: beam, sentences at a time, subwords of each, threads."""

    beam: int
    batch: int
    length: int
    threads: int


class Format(NamedTuple):
    """A number format in which a toolkit translates, and the options of its command for it."""

    name: str
    arguments: tuple[str, ...] = ()


class Toolkit(ABC):
    """One side of a comparison, run as its users run it: through its command line.

    Args:
        python: The interpreter of the environment that it is installed in.
    """

    name: str
    formats: tuple[Format, ...] = (Format("fp32"),)
    """Its number formats of translation; the first is its default."""
    end_step = 0
    """1 where the end of a sentence takes a step of the search, after the last subword."""
    side_by_side = False
    """Whether it translates several batches at a time, a thread each."""
    counted: re.Pattern[str]
    """Finds the number of parameters in the log of its training."""

    def __init__(self, python: Path) -> None:
        self.python = python

    @property
    @abstractmethod
    def version_code(self) -> str:
        """Python code that prints the versions."""

    @abstractmethod
    def prepare(self, folder: Path, task: Task, corpus: Path) -> None:
        """Write settings into `folder`; corpus + ".de" and ".en" hold a sentence a line, in words."""

    @abstractmethod
    def command(self, folder: Path, updates: int, log_every: int, run: Path) -> list[str]:
        """The command that trains for so many updates, writing to the folder `run`."""

    @abstractmethod
    def readings(self, output: str, run: Path) -> list[Reading]:
        """The lines of the log of a run."""

    def make(self, folder: Path, task: Task, corpus: Path, request: Request) -> int:  # noqa: ARG002
        """Make a model in `folder`, by one update of the toolkit's own training; gives its parameters."""
        self.prepare(folder, task, corpus)
        (folder / "run").mkdir()
        found = self.counted.search(printed(self.making_command(folder), folder))
        if found is None:
            sys.exit(f"error: {self.name}: the log of its training does not give the number of parameters")
        return int(found[1].replace(",", ""))

    def making_command(self, folder: Path) -> list[str]:
        """The command that leaves a model in the folder `run`."""
        return self.command(folder, 1, 1, folder / "run")

    @abstractmethod
    def translate(self, folder: Path, text: Path, output: Path, request: Request) -> list[str]:
        """The command that translates `text` in the default format; it gets the text as its input, too."""

    def translations(self, output: Path, log: str) -> list[str]:  # noqa: ARG002
        """The translations, a line for each sentence: from the file, or from what the command printed."""
        return output.read_text().splitlines()


def printed(command: Sequence[str], folder: Path) -> str:
    """The output and errors of a command that is run in `folder`."""
    run = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        check=False,
    )
    if run.returncode:
        sys.exit(f"error: {' '.join(command)} failed (status {run.returncode}):\n{run.stdout[-3000:]}")
    return run.stdout

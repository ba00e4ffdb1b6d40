"""What the comparison of decoding needs of a toolkit: a model, its command that translates, what came out."""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from peers.base import Task, Toolkit
from peers.decoding.commands import printed


@dataclass(frozen=True)
class Request:
    """What every toolkit is asked for: beam, sentences at a time, subwords of each translation, threads."""

    beam: int
    batch: int
    length: int
    threads: int


class Format(NamedTuple):
    """A number format that a toolkit offers, and what its command is told for it."""

    name: str
    arguments: tuple[str, ...] = ()


class Decoder(ABC):
    """One toolkit as its users translate with it: through its command line.

    Args:
        python: The interpreter of the environment that it is installed in.
    """

    trainer: type[Toolkit]
    """The same toolkit when it trains."""
    formats: tuple[Format, ...] = (Format("fp32"),)
    """Its number formats; the first is its default."""
    end_step = 0
    """1 where the end of a sentence takes a step of the search, after the last subword."""
    side_by_side = False
    """Whether it translates several batches at a time, a thread each."""
    counted: re.Pattern[str]
    """What the log of its training says of the number of parameters."""

    def __init__(self, python: Path) -> None:
        self.training = self.trainer(python)

    @property
    def name(self) -> str:
        return self.training.name

    def make(self, folder: Path, task: Task, corpus: Path, request: Request) -> int:  # noqa: ARG002
        """Make a model in `folder` and give the number of its parameters.

        The weights are random: those after one update of the toolkit's own training.
        """
        self.training.prepare(folder, task, corpus)
        (folder / "run").mkdir()
        log = printed(self.training_command(folder), folder)
        found = self.counted.search(log)
        if found is None:
            sys.exit(f"error: {self.name}: the log of its training does not give the number of parameters")
        return int(found[1].replace(",", ""))

    def training_command(self, folder: Path) -> list[str]:
        return self.training.command(folder, 1, 1, folder / "run")

    @abstractmethod
    def command(self, folder: Path, text: Path, output: Path, request: Request) -> list[str]:
        """The command that translates `text` in the default format; it gets the text as its input, too."""

    def translations(self, output: Path, log: str) -> list[str]:  # noqa: ARG002
        """What came out, a line for each sentence: from the file, or from what the command printed."""
        return output.read_text().splitlines()

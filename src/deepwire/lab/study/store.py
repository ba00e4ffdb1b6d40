"""Results of a study: small JSON files of which its page is made on any machine."""

from __future__ import annotations

import base64
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, ValidationError

from deepwire.config.validation_messages import first_fault
from deepwire.errors import DataError
from deepwire.evaluation.metric import Floats
from deepwire.io.atomic import disk_errors, write_json
from deepwire.io.regular_files import read_json
from deepwire.lab.finding import ReportRecord

_FORMAT: Literal[2] = 2


class LearningCurve(ReportRecord):
    """The validations of a run: when, and their loss in nats a token (None where it was not finite)."""

    updates: tuple[int, ...] = ()
    nll: tuple[float | None, ...] = ()


class ScoredTest(ReportRecord):
    """A test set, translated and scored.

    Attributes:
        bleu, chrf: Scores of the whole text.
        signature: Of BLEU.
        text: Digest of source and references.
        sentences: How many.
        statistics: BLEU's of every sentence, for resampling: see `pack`.
        seconds: To translate, without loading.
    """

    bleu: float
    chrf: float
    signature: str
    text: str
    sentences: int
    statistics: str
    seconds: float


class Standing(ReportRecord):
    """A run at a budget.

    Attributes:
        updates, target_tokens, seconds: Of training so far.
        nll: Of the last validation, nats a token; `best_nll` and `best_update`: the lowest so far.
        stood_still: Whether early stopping ended the run before the budget.
        averaged: Updates of the checkpoints whose mean translated; empty: the best one did.
        last: BLEU of the last of them alone, the mean over tests; None where it was not kept.
        settings: Of decoding.
        tests: By direction, and by direction and name those of ``more_tests``.
    """

    updates: int
    target_tokens: int
    seconds: float
    nll: float | None
    best_nll: float | None
    best_update: int | None
    stood_still: bool
    averaged: tuple[int, ...]
    last: float | None = None
    settings: dict[str, str]
    tests: dict[str, ScoredTest]


class RunRecord(ReportRecord):
    """One run, or one trial.

    Attributes:
        name: ``de-en.pre-norm.1``; of a trial ``de-en.pre-norm+half``.
        base, settings: The run file that it starts from, and all that the plan sets in it.
        text: Digest of all text that it reads.
        trained_with: Versions, processor, threads, number format.
        loss: The lowest validation loss of a trial.
        standings: At the budgets that it has reached; `failed`: why it could not reach one.
    """

    format: Literal[2] = _FORMAT
    name: str
    system: str
    seed: int
    alternative: str
    base: str
    settings: tuple[str, ...]
    text: str = ""
    parameters: int = 0
    trained_with: dict[str, str] = Field(default_factory=dict)
    date: str = ""
    curve: LearningCurve = LearningCurve()
    loss: float | None = None
    standings: dict[str, Standing] = Field(default_factory=dict)
    failed: dict[str, str] = Field(default_factory=dict)


class StudyStore:
    """The records of a study, one file for each run in ``runs/`` and for each trial in ``trials/``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str) -> RunRecord | None:
        """The record of a run or trial; None where there is none.

        Raises:
            DataError: It is damaged, or of another version.
        """
        path = self._path(name)
        if not path.exists():
            return None
        try:
            return RunRecord.model_validate(read_json(path))
        except ValidationError as error:
            raise DataError(
                f"{path}: is no result of this version: {first_fault(error)}",
                "move it away, and it will be measured again",
            ) from error

    def write(self, record: RunRecord) -> None:
        """Keep a record, in one step; a ResourceError where it cannot be written."""
        path = self._path(record.name)
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, record.model_dump(mode="json", exclude_defaults=True) | {"format": _FORMAT})

    def all(self) -> Iterator[RunRecord]:
        """Every run and trial, by name."""
        for path in sorted(self.folder.glob("*/*.json")):
            if (record := self.read(path.stem)) is not None:
                yield record

    def _path(self, name: str) -> Path:
        return self.folder / ("trials" if "+" in name else "runs") / f"{name}.json"


def pack(statistics: Floats) -> str:
    """Statistics of sentences ``[N, K]``, which are whole numbers, as text of five bytes a sentence."""
    whole = np.rint(statistics).astype("<i4")
    # Counts of longer and longer n-grams follow each other: their differences are small, and many are equal.
    steps = np.diff(whole, axis=1, prepend=0).astype("<i4")
    shape = np.array(whole.shape, dtype="<i4").tobytes()
    return base64.b85encode(lzma.compress(shape + steps.T.tobytes())).decode()


def unpack(text: str) -> Floats:
    """The statistics ``[N, K]`` that `pack` was given; a DataError where they are damaged."""
    try:
        numbers = np.frombuffer(lzma.decompress(base64.b85decode(text)), dtype="<i4")
        rows, columns = (int(size) for size in numbers[:2])
        steps = numbers[2:].reshape(columns, rows).T
    except (ValueError, lzma.LZMAError) as error:
        raise DataError(f"statistics of sentences are damaged: {error}") from error
    return np.cumsum(steps, axis=1).astype(np.float64)

"""What is kept of a run: small JSON files that a page can be made of on any machine."""

from __future__ import annotations

import base64
import lzma
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from deepwire.errors import DataError
from deepwire.evaluation.metric import Floats
from deepwire.io.atomic import disk_errors, write_json
from deepwire.io.regular_files import read_json
from deepwire.lab.experiments.questions.question_plan import Goal
from deepwire.lab.report.tables_and_figures import ReportRecord

_FORMAT = 1


class LearningCurve(ReportRecord):
    """The validations of a run, in the order of their updates.

    Attributes:
        updates: When.
        nll: Negative log-likelihood a token of the validation set, nats; None where it was not finite.
        bleu: Of its greedy translation; None where it was not translated.
    """

    updates: tuple[int, ...]
    nll: tuple[float | None, ...]
    bleu: tuple[float | None, ...]


class ScoredTest(ReportRecord):
    """The translation of a test set, scored.

    Attributes:
        bleu, chrf: With the settings of `signature` and of its like.
        signature: Of BLEU.
        text: Digest of source and references.
        sentences: How many.
        statistics: Of every sentence, for resampling: see `pack`.
        seconds: To translate, without loading.
    """

    bleu: float
    chrf: float
    signature: str
    text: str
    sentences: int
    statistics: str
    seconds: float


class RunStanding(ReportRecord):
    """A run at the common update, or where it stands still.

    Attributes:
        updates, target_tokens, seconds: Of training so far; seconds of training as the run counted them.
        nll: Of the last validation, nats a token.
        best_nll, best_update: The lowest of all validations so far, and when.
        stood_still: Whether early stopping ended the run.
        averaged: Updates of the checkpoints whose mean translated.
        settings: Of decoding: beam, length penalty, precision.
        tests: By direction.
    """

    updates: int
    target_tokens: int
    seconds: float
    nll: float | None
    best_nll: float | None
    best_update: int
    stood_still: bool
    averaged: tuple[int, ...]
    settings: dict[str, str]
    tests: dict[str, ScoredTest]

    def is_mean_of(self, average: int) -> bool:
        """Whether the last so many checkpoints were averaged, or all that there were."""
        first, count = self.averaged[0], len(self.averaged)
        between = (self.updates - first) // (count - 1) if count > 1 else first
        return count == average or (count < average and first == between)


class QuestionResult(ReportRecord):
    """One run.

    Attributes:
        name: As the plan of its part calls it: ``de-en.pre-norm.1``.
        system, seed: Which one.
        alternative: What the trials took.
        base, settings: The run file that it starts from, and all that the plans set in it.
        text: Digest of all text that it was trained and validated on.
        parameters: Of the model.
        trained_with: Versions, processor, threads, number format.
        date: Of the last measurement, UTC.
        curve: So far.
        standings: At the goals that it has reached.
        failed: Why it could not reach one, by goal.
    """

    format: int = _FORMAT
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
    curve: LearningCurve = LearningCurve(updates=(), nll=(), bleu=())
    standings: dict[Goal, RunStanding] = Field(default_factory=dict)
    failed: dict[Goal, str] = Field(default_factory=dict)

    def where_compared(self, equal_updates: int, average: int) -> QuestionResult:
        """Only with the standings that a plan asks for: at its common update, of so many checkpoints."""
        held = {
            goal: standing
            for goal, standing in self.standings.items()
            if standing.is_mean_of(average)
            and (
                goal == "plateau"
                or standing.updates == equal_updates
                or (standing.stood_still and standing.updates < equal_updates)
            )
        }
        return self.model_copy(update={"standings": held})


class TriedSettings(ReportRecord):
    """One trial.

    Attributes:
        system, alternatives, settings: What was tried; several names where they come to the same run.
        loss: The lowest validation loss, nats a token; None before it was made, or where it failed.
        failed: Why it failed.
        taken: Whether the runs of the system have these settings.
        base, made_with, text: The run file that it started from, all that the plan set in it, and the digest
            of its text: another machine takes the outcome over where all three are the same.
    """

    system: str
    alternatives: tuple[str, ...]
    settings: tuple[str, ...]
    loss: float | None
    failed: str | None
    taken: bool
    base: str = ""
    made_with: tuple[str, ...] = ()
    text: str = ""


class ResultFolder:
    """The results of a part: a file for each run in ``runs/``, and one of all trials.

    Args:
        folder: Made when the first one is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._trials = folder / "trials.json"

    def read(self, name: str) -> QuestionResult | None:
        """The result of a run; None where there is none.

        Raises:
            DataError: It is damaged, or of another version.
        """
        path = self._path(name)
        if not path.exists():
            return None
        try:
            return QuestionResult.model_validate(read_json(path))
        except ValidationError as error:
            where = ".".join(map(str, error.errors()[0]["loc"]))
            raise DataError(
                f"{path}: is no result of this version: {where}: {error.errors()[0]['msg']}",
                "move it away, and it will be measured again",
            ) from error

    def write(self, result: QuestionResult) -> None:
        """Keep a result, in one step.

        Raises:
            ResourceError: It cannot be written.
        """
        path = self._path(result.name)
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, result.model_dump(mode="json"))

    def all(self) -> Iterator[QuestionResult]:
        """Everything that is there, by name."""
        for path in sorted((self.folder / "runs").glob("*.json")):
            result = self.read(path.stem)
            if result is not None:
                yield result

    def _path(self, name: str) -> Path:
        return self.folder / "runs" / f"{name}.json"

    def write_trials(self, trials: Sequence[TriedSettings]) -> None:
        """Keep all trials.

        Raises:
            ResourceError: It cannot be written.
        """
        with disk_errors(self._trials):
            self.folder.mkdir(parents=True, exist_ok=True)
        write_json(
            self._trials, {"format": _FORMAT, "trials": [each.model_dump(mode="json") for each in trials]}
        )

    def trials(self) -> list[TriedSettings]:
        """All trials that were kept.

        Raises:
            DataError: The file is damaged.
        """
        if not self._trials.exists():
            return []
        try:
            return _TRIALS.validate_python(read_json(self._trials).get("trials"))
        except ValidationError as error:
            raise DataError(f"{self._trials}: holds no trials of this version") from error


_TRIALS = TypeAdapter(list[TriedSettings])


def pack(statistics: Floats) -> str:
    """Statistics of sentences ``[N, K]``, which are whole numbers, as text of five bytes a sentence."""
    whole = np.rint(statistics).astype("<i4")
    if not np.array_equal(whole, statistics):
        raise ValueError("statistics are not whole numbers")
    # Counts of longer and longer n-grams follow each other: their differences are small, and many are equal.
    steps = np.diff(whole, axis=1, prepend=0).astype("<i4")
    shape = np.array(whole.shape, dtype="<i4").tobytes()
    return base64.b85encode(lzma.compress(shape + steps.T.tobytes())).decode()


def unpack(text: str) -> Floats:
    """What `pack` was given, ``[N, K]``.

    Raises:
        DataError: It is damaged.
    """
    try:
        numbers = np.frombuffer(lzma.decompress(base64.b85decode(text)), dtype="<i4")
        rows, columns = (int(size) for size in numbers[:2])
        steps = numbers[2:].reshape(columns, rows).T
    except (ValueError, lzma.LZMAError) as error:
        raise DataError(f"statistics of sentences are damaged: {error}") from error
    return np.cumsum(steps, axis=1).astype(np.float64)

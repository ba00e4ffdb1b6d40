"""What a run leaves on the disk and on the screen as it goes: the business of one process among several."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from deepwire.checkpoint.run_directory import Checkpoint, among_best
from deepwire.config.counts import few
from deepwire.errors import ModelError
from deepwire.io.atomic import disk_errors, write_json, write_text
from deepwire.io.regular_files import open_for_appending
from deepwire.model.translation_model import TranslationModel
from deepwire.training.logging.depth_records import DepthRecords
from deepwire.training.logging.meter import Averages
from deepwire.training.logging.metrics_log import EventWriter, MetricsLog
from deepwire.training.logging.progress import Display, TrainingStatus
from deepwire.training.parallel_strategy import Snapshot
from deepwire.training.run.spec import TrainingSpec
from deepwire.training.run.state import TrainingState, save_checkpoint
from deepwire.training.run.stopping import StopReason
from deepwire.training.validation import Validation, worth_showing
from deepwire.training.warm_start.pretrained import PretrainedReport
from deepwire.training.warm_start.start_from import StartReport


@dataclass
class Attempt:
    """Whether a run has come to train; one that has not leaves nothing behind."""

    training: bool = False


class Recorder(Protocol):
    """Takes down what happens in a run."""

    def begin(self) -> None:
        """Everything is ready, and training begins."""

    def say(self, text: str) -> None:
        """Show one line."""

    def started_from(self, report: StartReport | PretrainedReport) -> None:
        """Record which parameters came from another model."""

    def move(self, status: TrainingStatus) -> None:
        """Show how far the run has come."""

    def train(self, state: TrainingState, averages: Averages, status: TrainingStatus) -> None:
        """Record the averages of an interval of updates."""

    def gradients(self, update: int, model: TranslationModel) -> None:
        """Record the gradients of an update by layer, where that is asked for; before they are clipped."""

    def depth_weights(self, update: int, model: TranslationModel) -> None:
        """Record how the model weighs its layers after an update, where that is asked for."""

    def skipped(self, update: int, pairs: list[int]) -> None:
        """Record an update that was not finite, and which training pairs (from 0) it had."""

    def valid(self, state: TrainingState, validation: Validation, seconds: float) -> None:
        """Record a validation that took so many seconds."""

    def among_best(self, state: TrainingState) -> bool:
        """Whether a checkpoint with these scores would be one of the best."""

    def save(
        self,
        model: TranslationModel,
        snapshot: Snapshot,
        state: TrainingState,
        examined: Mapping[str, object],
        *,
        asked: bool,
    ) -> None:
        """Write a checkpoint; say so where the user asked for it.

        Raises:
            ResourceError: If the disk is full.
        """

    def end(self, state: TrainingState, stop_reason: StopReason) -> None:
        """Record how the run ended."""

    def best(self) -> Checkpoint | None:
        """The best checkpoint, or the newest where nothing was scored; None if nothing was saved."""


class SilentRecorder:
    """Records nothing: another process does."""

    def begin(self) -> None:
        """Do nothing."""

    def say(self, text: str) -> None:
        """Do nothing."""

    def started_from(self, report: StartReport | PretrainedReport) -> None:
        """Do nothing."""

    def move(self, status: TrainingStatus) -> None:
        """Do nothing."""

    def train(self, state: TrainingState, averages: Averages, status: TrainingStatus) -> None:
        """Do nothing."""

    def gradients(self, update: int, model: TranslationModel) -> None:
        """Do nothing."""

    def depth_weights(self, update: int, model: TranslationModel) -> None:
        """Do nothing."""

    def skipped(self, update: int, pairs: list[int]) -> None:
        """Do nothing."""

    def valid(self, state: TrainingState, validation: Validation, seconds: float) -> None:
        """Do nothing."""

    def among_best(self, state: TrainingState) -> bool:  # noqa: ARG002 - the contract of Recorder
        """Not known here."""
        return False

    def save(
        self,
        model: TranslationModel,
        snapshot: Snapshot,
        state: TrainingState,
        examined: Mapping[str, object],
        *,
        asked: bool,
    ) -> None:
        """Do nothing."""

    def end(self, state: TrainingState, stop_reason: StopReason) -> None:
        """Do nothing."""

    def best(self) -> Checkpoint | None:
        """Not known here."""
        return None


class RunRecorder:
    """Writes the files of the run directory and the lines of the log.

    Args:
        spec: What is trained.
        display: The terminal and ``log.txt``.
        metrics: ``metrics.jsonl``.
        events: TensorBoard.
        records: What is written for analyses.
        attempt: Is told when training begins.
    """

    def __init__(
        self,
        spec: TrainingSpec,
        display: Display,
        metrics: MetricsLog,
        events: EventWriter,
        records: DepthRecords,
        attempt: Attempt,
    ) -> None:
        self._attempt = attempt
        self._spec, self._run = spec, spec.run
        self._display, self._metrics, self._events, self._records = display, metrics, events, records

    def begin(self) -> None:
        """From now on the run directory stays, whatever happens."""
        self._attempt.training = True

    def say(self, text: str) -> None:
        """Show one line, and append it to ``log.txt``."""
        self._display.say(text)

    def started_from(self, report: StartReport | PretrainedReport) -> None:
        """Show which parameters came from another model, and write all names to ``start_from.json``."""
        write_json(self._run.start_from, report.to_json())
        for line in report.lines():
            self.say(line)

    def move(self, status: TrainingStatus) -> None:
        """Advance the bar."""
        self._display.move(status)

    def train(self, state: TrainingState, averages: Averages, status: TrainingStatus) -> None:
        """Record the averages of an interval of updates."""
        values = {
            "loss": averages.loss,
            "nll": averages.nll,
            "perplexity": averages.perplexity,
            "learning_rate": status.learning_rate,
            "gradient_norm": averages.gradient_norm,
            "tokens_per_second": averages.tokens_per_second,
        }
        if averages.divergence is not None and (name := self._spec.config.divergence):
            values[name] = averages.divergence
        if averages.alignment is not None:
            values["guided_alignment"] = averages.alignment
        self._metrics.write(
            {
                "kind": "train",
                "update": state.update,
                "epoch": state.epochs,
                "target_tokens": state.target_tokens,
                **values,
                "seconds": status.seconds,
                "memory": status.memory,
            }
        )
        self._events.write("train", state.update, values)
        self._display.train_line(status, averages)

    def gradients(self, update: int, model: TranslationModel) -> None:
        """Record the gradients of an update by layer, if it is due."""
        self._records.gradients(update, model)

    def depth_weights(self, update: int, model: TranslationModel) -> None:
        """Record how the model weighs its layers after an update, if it is due."""
        self._records.weights(update, model)

    def skipped(self, update: int, pairs: list[int]) -> None:
        """Record an update that was not finite, with its lines and their text, in ``bad_batch.jsonl``."""
        path, prepared = self._run.bad_batch, self._spec.prepared
        lines = [prepared.place(pair) for pair in pairs]
        self.say(
            f"u {update} skipped: loss or gradient is not finite; lines {few(lines)}, all in {path.name}"
        )
        store = prepared.train
        texts = [[store.source_text(pair), store.target_text(pair)] for pair in pairs]
        with disk_errors(path), open_for_appending(path) as file:
            file.write(json.dumps({"update": update, "lines": lines, "texts": texts}, ensure_ascii=False))
            file.write("\n")

    def valid(self, state: TrainingState, validation: Validation, seconds: float) -> None:
        """Record a validation, and its translations in ``valid/``."""
        for name, scored in {"": validation, **validation.directions}.items():
            if scored.translations:
                self._run.translations.mkdir(exist_ok=True)
                suffix = f"{name}.txt" if name else "txt"
                path = self._run.translations / f"update-{state.update:06d}.{suffix}"
                write_text(path, "".join(f"{line}\n" for line in scored.translations))
        directions = {name: scored.scores for name, scored in validation.directions.items()}
        self._metrics.write(
            {
                "kind": "valid",
                "update": state.update,
                "epoch": state.epochs,
                **validation.scores,
                **({"directions": directions} if directions else {}),
                "seconds": seconds,
            }
        )
        self._events.write("valid", state.update, validation.scores)
        best = self._among_best(validation.scores, 1)
        metric = self._spec.config.validation.metric
        self._display.valid_line(state.update, validation.scores, f"best {metric} so far" if best else "")
        for name, scores in directions.items():
            self._events.write(f"valid {name}", state.update, scores)
        shown = worth_showing({name: scores["nll"] for name, scores in directions.items()})
        for name in shown:
            self._display.valid_line(state.update, directions[name], "", direction=name)
        if len(shown) < len(directions):
            self.say(
                f"u {state.update} valid {len(directions)} directions, of which these have the lowest "
                "and the highest nll; all are in metrics.jsonl"
            )

    def among_best(self, state: TrainingState) -> bool:
        """Whether a checkpoint with these scores would be one of the best that are kept."""
        return self._among_best(state.scores, self._spec.config.checkpoint.keep_best)

    def _among_best(self, scores: dict[str, float], count: int) -> bool:
        metric = self._spec.config.validation.metric
        return among_best(self._run.checkpoints(), metric, scores.get(metric), count)

    def save(
        self,
        model: TranslationModel,
        snapshot: Snapshot,
        state: TrainingState,
        examined: Mapping[str, object],
        *,
        asked: bool,
    ) -> None:
        """Write a checkpoint; say so where the user asked for it."""
        self._metrics.sync()
        self._records.sync()
        state.metrics = self._metrics.digest
        path = save_checkpoint(self._spec, model, snapshot, state, examined)
        if asked:
            self.say(f"u {state.update} saved {path}")

    def end(self, state: TrainingState, stop_reason: StopReason) -> None:
        """Record how the run ended, in ``DONE`` where it is complete."""
        if stop_reason.finished:
            write_json(self._run.done, {"update": state.update, "reason": stop_reason.reason})
        self.say(f"stopped at update {state.update}: {stop_reason.reason}")

    def best(self) -> Checkpoint | None:
        """The best checkpoint, or the newest where nothing was scored; None if nothing was saved."""
        try:
            return self._run.best()
        except ModelError as error:  # of a file of an earlier checkpoint; this run has ended well
            self.say(f"warning: {error.message}")
            return None

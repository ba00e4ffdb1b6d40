"""The parts of a run, and what happens between two updates: logging, validation, checkpoints, stopping."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from deepwire.checkpoint.files import disk_errors, write_text
from deepwire.checkpoint.retention import among_best
from deepwire.data.batching import UpdateStream
from deepwire.errors import DivergedError
from deepwire.model.translator import LossSums, TranslationModel
from deepwire.ops.cross_entropy import SmoothingForm
from deepwire.training.device import memory_in_use
from deepwire.training.ending import Ending
from deepwire.training.feed import DeviceUpdate, feed
from deepwire.training.job import Job
from deepwire.training.limits import limit_reached, progress
from deepwire.training.meter import Meter
from deepwire.training.metrics_log import MetricsLog
from deepwire.training.optimizer import Optimizer, StepResult
from deepwire.training.precision import Numerics
from deepwire.training.progress import Display, Standing
from deepwire.training.saving import save_checkpoint
from deepwire.training.schedule import Schedule
from deepwire.training.signals import Signals
from deepwire.training.state import TrainingState
from deepwire.training.tensorboard import EventWriter
from deepwire.training.validation import Validator

BAD_IN_A_ROW = 10

LossFunction = Callable[[Tensor, Tensor, Tensor, float, SmoothingForm], LossSums]


@dataclass
class Trainer:
    """A run in motion.

    Attributes:
        job: What is trained, on what, and how.
        device: Where.
        numerics: In which number formats.
        model: The model.
        loss: ``model.loss``, compiled where asked for.
        optimizer: Adam over the parameters of ``model``.
        schedule: Learning rate of each update.
        stream: The training batches.
        epoch_size: Sentence pairs that an epoch reads.
        validator: Scores the validation set; None without one.
        state: How far the run has come.
        metrics: ``metrics.jsonl``.
        events: TensorBoard.
        display: The terminal and ``log.txt``.
        signals: What the user asks for while it runs.
    """

    job: Job
    device: torch.device
    numerics: Numerics
    model: TranslationModel
    loss: LossFunction
    optimizer: Optimizer
    schedule: Schedule
    stream: UpdateStream
    epoch_size: Callable[[int], int]
    validator: Validator | None
    state: TrainingState
    metrics: MetricsLog
    events: EventWriter
    display: Display
    signals: Signals
    _meter: Meter = field(init=False)
    _unread: list[DeviceUpdate] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self._meter = Meter(self.device)
        if self.state.interval:
            self._meter.load_state(self.state.interval)
        self._saved_at = self._last_good = self.state.update
        self._started = time.perf_counter()
        self._seconds_before = self.state.seconds
        self._share_before = progress(self.job.config, self.state)

    @property
    def smoothing(self) -> tuple[float, SmoothingForm]:
        """Label smoothing: the probability mass, and who receives it."""
        return self.job.config.label_smoothing, self.job.config.label_smoothing_form

    def updates(self) -> Generator[DeviceUpdate]:
        """The updates from here on, on the device."""
        return feed(self.stream, self.state.position, self.device)

    def seed_of(self, update: int) -> int:
        """Seed of the random numbers (dropout) of one update: a function of the run's seed and its number."""
        text = f"{self.job.seed} update {update}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "little")

    def zero(self) -> Tensor:
        """A sum to start from, on the device."""
        return torch.zeros((), dtype=torch.float32, device=self.device)

    def count(self, update: DeviceUpdate, loss: Tensor, nll: Tensor, step: StepResult) -> None:
        """Take note of an update that was made: its sums of loss and nll, and the outcome of its step."""
        self._meter.add(loss, nll, update.target_tokens, step)
        self._unread.append(update)
        state = self.state
        state.update, state.position = update.number, update.after
        state.pass_epoch(update.epoch, sum(map(len, update.lines)), self.epoch_size(update.epoch))
        state.target_tokens += update.target_tokens
        state.steps = self.optimizer.steps
        state.scores = {}

    def between_updates(self) -> Ending | None:
        """Log, validate and save what is due after the update just made; say whether the run ends here.

        Called once before the first update too: a continued run may have a validation to make up for.

        Raises:
            DivergedError: If too many updates in a row were not finite.
            ResourceError: If the disk is full.
        """
        config, state = self.job.config, self.state
        ending = self._limit()
        fresh = bool(self._unread)
        if fresh and (self.device.type == "cpu" or ending or state.update % config.log_every == 0):
            self._look_at_verdicts()
        if fresh and (ending or state.update == 1 or state.update % config.log_every == 0):
            self._log()
        self.display.move(self._standing())
        if fresh and self.validator is not None and (ending or self.validator.due(state.update)):
            state.validation_due = True
        validated = state.validation_due and self._validate()
        if validated and ending is None:
            ending = self._patience_exhausted()
        self._save_if_due(validated, ending)
        if self.signals.stop is not None:
            return Ending(self.signals.stop.name, finished=False, exit_code=self.signals.exit_code)
        return ending

    def _limit(self) -> Ending | None:
        reason = limit_reached(self.job.config, self.state)
        return Ending(reason, finished=True) if reason else None

    def _patience_exhausted(self) -> Ending | None:
        stopping = self.job.config.early_stopping
        if stopping is None or not self.state.patience.exhausted(stopping):
            return None
        reason = f"{stopping.metric} has not improved for {stopping.patience} validations"
        return Ending(reason, finished=True)

    def _look_at_verdicts(self) -> None:
        """Learn which of the last updates were skipped because they were not finite; waits for the device."""
        state, log_lines = self.state, []
        for update, finite in zip(self._unread, self._meter.take_verdicts(), strict=True):
            if finite:
                state.bad_in_a_row, self._last_good = 0, update.number
                continue
            state.bad_in_a_row += 1
            self.optimizer.forget_steps(1)
            lines = [int(line) + 1 for batch in update.lines for line in batch]
            log_lines.append(json.dumps({"update": update.number, "lines": lines}))
            self.display.say(
                f"u {update.number} skipped: loss or gradient is not finite; "
                f"pairs {_few(lines)}, all in {self.job.run.bad_batch.name}"
            )
        self._unread.clear()
        state.steps = self.optimizer.steps
        if log_lines:
            with disk_errors(self.job.run.bad_batch), self.job.run.bad_batch.open("a") as file:
                file.writelines(f"{line}\n" for line in log_lines)
        if state.bad_in_a_row >= BAD_IN_A_ROW:
            raise DivergedError(
                f"loss or gradient not finite {state.bad_in_a_row} updates in a row "
                f"(last good update {self._last_good}); the pairs are listed in {self.job.run.bad_batch}",
                "try a lower training.schedule.peak or training.clip_norm with --fresh, "
                "or training.precision=fp32",
            )

    def _log(self) -> None:
        averages, standing = self._meter.averages(), self._standing()
        self._meter.reset()
        values = {
            "loss": averages.loss,
            "nll": averages.nll,
            "perplexity": averages.perplexity,
            "learning_rate": standing.learning_rate,
            "gradient_norm": averages.gradient_norm,
            "tokens_per_second": averages.tokens_per_second,
        }
        self.metrics.write(
            {
                "kind": "train",
                "update": self.state.update,
                "epoch": self.state.epochs,
                "target_tokens": self.state.target_tokens,
                **values,
                "seconds": self._seconds(),
                "memory": standing.memory,
            }
        )
        self.events.write("train", self.state.update, values)
        self.display.train_line(standing, averages)

    def _validate(self) -> bool:
        """Score the validation set; False when a signal came in between, and then it is still due."""
        if self.validator is None:
            return False
        state, started = self.state, time.perf_counter()
        found = self.validator.run(
            self.model, self.numerics, state.update, lambda: self.signals.stop is not None
        )
        self._meter.skip_time()
        if found is None:
            return False
        state.validation_due, state.scores = False, found.scores
        stopping, metric = self.job.config.early_stopping, self.job.config.validation.metric
        if stopping is not None:
            state.patience.see(stopping, found.scores)
        if found.translations:
            self.job.run.translations.mkdir(exist_ok=True)
            path = self.job.run.translations / f"update-{state.update:06d}.txt"
            write_text(path, "".join(f"{line}\n" for line in found.translations))
        seconds = time.perf_counter() - started
        self.metrics.write(
            {
                "kind": "valid",
                "update": state.update,
                "epoch": state.epochs,
                **found.scores,
                "seconds": seconds,
            }
        )
        self.events.write("valid", state.update, found.scores)
        best = among_best(self.job.run.checkpoints(), metric, found.scores.get(metric), 1)
        self.display.valid_line(state.update, found.scores, f"best {metric} so far" if best else "")
        return True

    def _save_if_due(self, validated: bool, ending: Ending | None) -> None:
        config, state = self.job.config, self.state
        asked = self.signals.save or self.signals.stop is not None
        self.signals.save = False
        changed = state.update > self._saved_at
        periodic = state.update % (config.checkpoint.every or config.validation.every) == 0
        due = changed and (periodic or asked or ending is not None)
        if not (due or (validated and (not changed or self._is_among_best()))):
            return
        if self._unread:
            self._look_at_verdicts()
        state.seconds, state.interval = self._seconds(), self._meter.state()
        self.metrics.sync()
        path = save_checkpoint(self.job, self.model, self.optimizer, state)
        self._saved_at = state.update
        if asked:
            self.display.say(f"u {state.update} saved {path}")
        self._meter.skip_time()

    def _is_among_best(self) -> bool:
        metric, keep = self.job.config.validation.metric, self.job.config.checkpoint.keep_best
        return among_best(self.job.run.checkpoints(), metric, self.state.scores.get(metric), keep)

    def _seconds(self) -> float:
        return self._seconds_before + time.perf_counter() - self._started

    def _standing(self) -> Standing:
        share = progress(self.job.config, self.state)
        done = share - self._share_before
        left = (1 - share) / done * (time.perf_counter() - self._started) if done > 0 else None
        return Standing(
            update=self.state.update,
            epoch=self.state.epochs,
            share=share,
            seconds_left=left,
            learning_rate=self.schedule(max(1, self.state.update)),
            memory=memory_in_use(self.device),
        )


def _few(lines: list[int]) -> str:
    shown = ", ".join(str(line) for line in lines[:5])
    return shown if len(lines) <= 5 else f"{shown} and {len(lines) - 5} more"

"""The traces of a run on the screen and in its files: lines, records of updates, TensorBoard events."""

from __future__ import annotations

import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from deepwire.config.counts import first_few
from deepwire.errors import DataError, DeepwireError, LogFn, ModelError, UsageError
from deepwire.io.atomic import disk_errors, write_json, write_text
from deepwire.io.json_lines import finite
from deepwire.io.progress_line import CLEAR, ProgressLine
from deepwire.io.regular_files import open_for_appending, open_regular
from deepwire.training.spec import TrainingSpec, WarmStartReport
from deepwire.training.state import StopReason, TrainingState
from deepwire.training.validation import MAX_SHOWN, Validation, perplexity

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


@dataclass(frozen=True)
class Averages:
    """Averages of the updates between two lines of the log.

    Attributes:
        losses: Per target token, in nats, by name: ``loss`` (smoothed), ``nll``, those that are added.
        gradient_norm: Mean norm of the gradient before clipping.
        tokens: Target tokens.
        tokens_per_second: Of the time spent in updates, without validation and saving.
    """

    losses: Mapping[str, float]
    gradient_norm: float
    tokens: int
    tokens_per_second: float


@dataclass(frozen=True)
class TrainingStatus:
    """Where a run stands.

    Attributes:
        update: Updates made.
        epoch: Epochs made, with their fraction.
        share: Share of the run that is done, 0 to 1.
        seconds: Time spent on the run, interruptions not counted.
        seconds_left: Expected time to the end; None while unknown.
        learning_rate: Of the last update.
        memory: Bytes in use at the last line of the log, of all processes together.
    """

    update: int
    epoch: float
    share: float
    seconds: float
    seconds_left: float | None
    learning_rate: float
    memory: int


_SHORT_NAMES = {"r_drop": "kl", "sim_cut": "kl", "guided_alignment": "al"}


_WIDTH_OF_BAR = 30


class Display:
    """Shows lines on stderr, on a terminal with a bar below, and appends them with the time to ``log.txt``.

    Where the terminal or the reader is gone, ``log.txt`` says so and goes on: a run is worth more than a line
    on the screen.

    Args:
        log: ``log.txt``; made when missing.
        quiet: Write to the file only.

    Attributes:
        has_bar: Whether a bar is shown.
    """

    def __init__(self, log: Path, quiet: bool = False) -> None:
        self._path, self._silent = log, quiet
        self.has_bar = not quiet and sys.stderr.isatty()
        self._bar = ProgressLine(live=self.has_bar)
        with disk_errors(log):
            self._file = open_for_appending(log)

    def __enter__(self) -> Display:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._try(self._bar.end)
        # On a full disk this fails like the write before it, and says nothing new.
        with suppress(OSError), self._file:
            if isinstance(error, DeepwireError):
                self._write(f"error: {error.message}")
            elif error is not None:
                self._write("".join(traceback.format_exception(error)))

    def say(self, text: str) -> None:
        """Show one line."""
        line = f"{CLEAR * ProgressLine.shown}{text}"
        self._try(lambda: print(line, file=sys.stderr, flush=True))
        with disk_errors(self._path):
            self._write(text)

    def move(self, status: TrainingStatus) -> None:
        """Draw the bar anew, if it is time."""
        self._try(lambda: self._bar.show(lambda: _bar(status)))

    def _try(self, show: Callable[[], None]) -> None:
        """Show something, as long as somebody can see it."""
        if self._silent:
            return
        try:
            show()
        except OSError as error:
            self._silent = True
            with disk_errors(self._path):
                self._write(
                    f"nothing can be shown any more ({error.strerror or 'closed'}); this file goes on"
                )

    def _write(self, text: str) -> None:
        self._file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
        self._file.flush()

    def train_line(self, status: TrainingStatus, averages: Averages) -> None:
        """Show the averages of an interval of updates."""
        losses = averages.losses
        parts = [f"u {status.update} ep {status.epoch:.2f}"]
        parts += [f"{_SHORT_NAMES.get(name, name)} {value:.3f}" for name, value in losses.items()]
        parts += [
            f"ppl {short(perplexity(losses['nll']))} lr {status.learning_rate:.1e}",
            f"gn {averages.gradient_norm:.2f} tok/s {short(averages.tokens_per_second)}",
            f"eta {human_time(status.seconds_left)} mem {short(status.memory)}",
        ]
        self.say(" ".join(parts))

    def valid_line(self, update: int, scores: dict[str, float], note: str, direction: str = "") -> None:
        """Show the scores of a validation, or those of one direction in it."""
        parts = [f"loss {scores['loss']:.3f} nll {scores['nll']:.3f} ppl {short(scores['perplexity'])}"]
        known = ("loss", "nll", "perplexity")
        parts += [f"{name} {score:.2f}" for name, score in scores.items() if name not in known]
        where = f"valid {direction}" if direction else "valid"
        self.say(f"u {update} {where} {' '.join(parts)}{f' ({note})' if note else ''}")


def _bar(status: TrainingStatus) -> str:
    """The bar of a run that stands there: ``u 10 ep 0.50 [###---] 50% left 3s``."""
    filled = round(status.share * _WIDTH_OF_BAR)
    bar = "#" * filled + "-" * (_WIDTH_OF_BAR - filled)
    left = human_time(status.seconds_left)
    return f"u {status.update} ep {status.epoch:.2f} [{bar}] {status.share:.0%} left {left}"


def short(number: float) -> str:
    """A number in at most about four characters: ``9.2``, ``18.2k``, ``3.1G``, ``inf``."""
    if not math.isfinite(number):
        return str(number)
    for letter in ("", "k", "M", "G"):
        if abs(number) < 999.5:
            return f"{number:.0f}{letter}" if abs(number) >= 99.95 else f"{number:.1f}{letter}"
        number /= 1000
    return f"{number:.3g}T"


def human_time(seconds: float | None) -> str:
    """A time as people say it: ``45s``, ``12m``, ``1h12``, ``3d04h``; ``?`` where it is unknown."""
    if seconds is None:
        return "?"
    minutes = round(seconds / 60)
    if seconds < 99.5:
        return f"{seconds:.0f}s"
    if minutes < 60:
        return f"{minutes}m"
    hours, rest = divmod(minutes, 60)
    return f"{hours}h{rest:02d}" if hours < 48 else f"{hours // 24}d{hours % 24:02d}h"


class RunLog:
    """The lines, records and files of a run. Until it is opened there is nothing but lines.

    Only the main process opens it, so the others leave no trace.

    Args:
        spec: What is trained.
        say: Shows a line; default: lines are kept until the log is opened.

    Attributes:
        has_bar: Whether there is a bar to advance.
    """

    def __init__(self, spec: TrainingSpec, say: LogFn | None = None) -> None:
        self._spec, self._run = spec, spec.run
        self._early: list[str] = []
        self._say = say or self._early.append
        self._begun_with: WarmStartReport | None = None
        self._display: Display | None = None
        self.has_bar = False
        self._events: SummaryWriter | None = None

    @contextmanager
    def opened(self, display: Display, state: TrainingState, *, continued: bool) -> Iterator[None]:
        """Write to the files of the run within the block; what was said before comes first.

        Args:
            display: The terminal and ``log.txt``.
            state: What training goes on from; records of later updates are cut off.
            continued: Whether the run has made updates before, whose records should be there.
        """
        run = self._run
        lost = continued and not run.metrics.exists()
        for path in self._record_files:
            made_again = state.validation_due and path == run.metrics
            cut_after(path, state.update, drop_validation=made_again)
        events = _tensorboard(run.tensorboard, state.update) if self._spec.config.tensorboard else None
        with closing(events) if events else nullcontext():
            self._display, self._say, self._events = display, display.say, events
            self.has_bar = display.has_bar
            if self._begun_with is not None:
                write_json(run.start_from, asdict(self._begun_with))
            for line in self._early:
                display.say(line)
            if lost:
                display.say(f"warning: {run.metrics.name} is missing: its records so far are lost")
            yield

    @property
    def _record_files(self) -> tuple[Path, ...]:
        run = self._run
        return run.metrics, run.bad_batch, run.gradients, run.depth_weights

    def say(self, text: str) -> None:
        """Show one line, and append it to ``log.txt``."""
        self._say(text)

    def begun_with(self, report: WarmStartReport) -> None:
        """Show which parameters came from another model; ``start_from.json`` will have all names."""
        self._begun_with = report
        for line in report.lines():
            self.say(line)

    def move(self, status: TrainingStatus) -> None:
        """Advance the bar."""
        if self._display is not None:
            self._display.move(status)

    def append(self, path: Path, record: Mapping[str, object]) -> None:
        """Append a record to a file of the run; nothing where the log is not open."""
        if self._display is not None:
            append_record(path, record)

    def sync(self) -> None:
        """Wait until all records have reached the disk: a checkpoint must not be ahead of them."""
        for path in self._record_files:
            if path.exists():
                with disk_errors(path), open_for_appending(path) as file:
                    os.fsync(file.fileno())

    def train(self, state: TrainingState, averages: Averages, status: TrainingStatus) -> None:
        """Record the averages of an interval of updates."""
        if self._display is None:
            return
        rest = dict(averages.losses)
        values: dict[str, float] = {
            "loss": rest.pop("loss"),
            "nll": rest.pop("nll"),
            "perplexity": perplexity(averages.losses["nll"]),
            "learning_rate": status.learning_rate,
            "gradient_norm": averages.gradient_norm,
            "tokens_per_second": averages.tokens_per_second,
            **rest,
        }
        self._record(
            "train",
            state,
            {
                "target_tokens": state.target_tokens,
                **values,
                "seconds": status.seconds,
                "memory": status.memory,
            },
        )
        self._event("train", state.update, values)
        self._display.train_line(status, averages)

    def skipped(self, update: int, pairs: list[int]) -> None:
        """Record an update that was not finite, with its lines and their text, in ``bad_batch.jsonl``."""
        if self._display is None:
            return
        path, prepared = self._run.bad_batch, self._spec.prepared
        lines = [prepared.place(pair) for pair in pairs]
        self.say(
            f"u {update} skipped: loss or gradient is not finite; lines {first_few(lines)}, "
            f"all in {path.name}"
        )
        store = prepared.train
        texts = [[store.source_text(pair), store.target_text(pair)] for pair in pairs]
        append_record(path, {"update": update, "lines": lines, "texts": texts})

    def valid(self, state: TrainingState, validation: Validation, seconds: float, note: str) -> None:
        """Record a validation that took so many seconds, and its translations in ``valid/``."""
        if self._display is None:
            return
        update, scores = state.update, validation.scores
        for name, scored in {"": validation, **validation.directions}.items():
            if scored.translations:
                self._run.translations.mkdir(exist_ok=True)
                suffix = f"{name}.txt" if name else "txt"
                path = self._run.translations / f"update-{update:06d}.{suffix}"
                write_text(path, "".join(f"{line}\n" for line in scored.translations))
        directions = {name: scored.scores for name, scored in validation.directions.items()}
        told = {"directions": directions} if directions else {}
        self._record("valid", state, {**scores, **told, "seconds": seconds})
        self._event("valid", update, scores)
        self._display.valid_line(update, scores, note)
        for name, of_direction in directions.items():
            self._event(f"valid {name}", update, of_direction)
        for name in directions if len(directions) <= MAX_SHOWN else ():
            self._display.valid_line(update, directions[name], "", direction=name)

    def end(self, state: TrainingState, stop_reason: StopReason) -> None:
        """Record how the run ended, in ``DONE`` where it is complete."""
        if self._display is not None and stop_reason.finished:
            write_json(self._run.done, {"update": state.update, "reason": stop_reason.reason})
        self.say(f"stopped at update {state.update}: {stop_reason.reason}")

    def _record(self, kind: str, state: TrainingState, values: Mapping[str, object]) -> None:
        record = {"kind": kind, "update": state.update, "epoch": state.epochs, **values}
        append_record(self._run.metrics, record)

    def _event(self, kind: str, update: int, values: Mapping[str, float]) -> None:
        if self._events is not None:
            for name, value in values.items():
                self._events.add_scalar(f"{kind}/{name}", value, update)


def _tensorboard(folder: Path, after: int) -> SummaryWriter:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise UsageError(
            "training.tensorboard is true, but TensorBoard is not installed",
            "pip install 'deepwire[tensorboard]', or set training.tensorboard to false",
        ) from error
    return SummaryWriter(str(folder), purge_step=after + 1)


def append_record(path: Path, record: Mapping[str, object]) -> None:
    """Append a JSON object as a line to a file, which is made when missing.

    Numbers that are not finite are written as null, which JSON has, and not as NaN, which it does not.
    """
    with disk_errors(path), open_for_appending(path) as file:
        file.write(json.dumps(finite(record), ensure_ascii=False) + "\n")


def cut_after(path: Path, update: int, *, drop_validation: bool = False) -> None:
    """Remove the records of later updates, and lines that are none, as a crash leaves the last one.

    Args:
        path: ``metrics.jsonl`` or another file of JSON objects with the key ``update``.
        update: The last update to keep.
        drop_validation: Remove the record of a validation at ``update`` too: it will be made again.

    Raises:
        UsageError: If the file is a link or a pipe.
        ResourceError: If it cannot be read or written.
    """
    if not os.path.lexists(path):
        return
    with disk_errors(path), open_for_appending(path) as file:
        file.seek(0)
        lines = file.read().split("\n")
    kept = "".join(f"{line}\n" for line in lines if _belongs(line, update, drop_validation))
    if kept != "\n".join(lines):
        write_text(path, kept)


def _belongs(line: str, update: int, drop_validation: bool) -> bool:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return False
    at = record.get("update") if isinstance(record, dict) else None
    if not isinstance(at, int):
        return False
    return at < update or (at == update and not (drop_validation and record.get("kind") == "valid"))


def read_records(path: Path) -> list[Mapping[str, object]]:
    """The records of a file, in the order of their updates; none where the file is missing.

    The last line may be unfinished: training can be under way.

    Raises:
        DataError: The file cannot be read, or an earlier line is no JSON object.
    """
    try:
        with open_regular(path) as file:
            lines = file.read().decode("utf-8").split("\n")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot read: {error}") from error
    records: list[Mapping[str, object]] = []
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            if number == len(lines):
                break
            raise DataError(f"{path}:{number}: is not JSON: {error}") from error
        if not isinstance(record, dict):
            raise DataError(f"{path}:{number}: holds {type(record).__name__}, not an object")
        records.append(record)
    return records


def number_of(record: Mapping[str, object], name: str) -> float:
    """A number in a record of an update.

    Raises:
        ModelError: It has no such number.
    """
    value = record.get(name)
    if not isinstance(value, int | float):
        raise ModelError(f"metrics.jsonl: update {record.get('update')} has no {name}")
    return float(value)

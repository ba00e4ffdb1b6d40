"""The traces of a run on the screen and in its files: lines, records of updates, TensorBoard events."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from deepwire.config.counts import first_few
from deepwire.errors import DataError, LogFn, ModelError, UsageError
from deepwire.io.atomic import disk_errors, free_name, write_json, write_text
from deepwire.io.json_lines import finite
from deepwire.io.regular_files import open_for_appending, open_regular
from deepwire.training.progress import Averages, Display, TrainingStatus, perplexity
from deepwire.training.spec import TrainingSpec, WarmStartReport
from deepwire.training.state import StopReason, TrainingState
from deepwire.training.validation import Validation, worth_showing

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class RunLog:
    """The lines, records and files of a run. Until it is opened there is nothing but lines.

    Only the main process opens it, so the others leave no trace.

    Args:
        spec: What is trained.
        say: Shows a line; default: lines are kept until the log is opened.
    """

    def __init__(self, spec: TrainingSpec, say: LogFn | None = None) -> None:
        self._spec, self._run = spec, spec.run
        self._early: list[str] = []
        self._say = say or self._early.append
        self._begun_with: WarmStartReport | None = None
        self._display: Display | None = None
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
        lost = f"{run.metrics.name} is missing: the records up to update {state.update} are lost"
        warnings = [] if run.metrics.exists() else [lost]
        for path in self._record_files:
            made_again = state.validation_due and path == run.metrics
            warnings.append(cut_after(path, state.update, drop_validation=made_again))
        events = _tensorboard(run.tensorboard, state.update) if self._spec.config.tensorboard else None
        with closing(events) if events else nullcontext():
            self._display, self._say, self._events = display, display.say, events
            if self._begun_with is not None:
                write_json(run.start_from, self._begun_with.to_json())
            for line in self._early:
                display.say(line)
            for line in filter(None, warnings if continued else ()):
                display.say(f"warning: {line}")
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
        self._record("train", state, {"target_tokens": state.target_tokens, **values, **_of_machine(status)})
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
        shown = worth_showing({name: of_direction["nll"] for name, of_direction in directions.items()})
        for name in shown:
            self._display.valid_line(update, directions[name], "", direction=name)
        if len(shown) < len(directions):
            self.say(
                f"u {update} valid {len(directions)} directions, of which these have the lowest "
                "and the highest nll; all are in metrics.jsonl"
            )

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


def _of_machine(status: TrainingStatus) -> dict[str, float]:
    return {"seconds": status.seconds, "memory": status.memory}


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


def cut_after(path: Path, update: int, *, drop_validation: bool = False) -> str:
    """Remove the records of later updates, and a last line that a crash left unfinished.

    Earlier lines that are no records are removed too; the file as it was is kept as ``NAME.damaged`` then.

    Args:
        path: ``metrics.jsonl`` or another file of JSON objects with the key ``update``.
        update: The last update to keep.
        drop_validation: Remove the record of a validation at ``update`` too: it will be made again.

    Returns:
        What was damaged, for the user; empty where all was well.

    Raises:
        UsageError: If the file is a link or a pipe.
        ResourceError: If it cannot be read or written.
    """
    if not os.path.lexists(path):
        return ""
    with disk_errors(path), open_for_appending(path) as file:
        file.seek(0)
        lines = file.read().split("\n")
    kept, damaged, said = "", list[str](), ""
    for number, line in enumerate(lines, 1):
        record = _record(line)
        if record is None:
            damaged += [str(number)] if line and number < len(lines) else []  # a crash leaves the last one
        elif _belongs(record, update, drop_validation):
            kept += f"{line}\n"
    if damaged:
        copy = free_name(path, "damaged")
        with disk_errors(copy):
            shutil.copyfile(path, copy)
        said = f"{path.name}: damaged lines are left out ({first_few(damaged)}); "
        said += f"the file as it was is {copy.name}"
    if kept != "\n".join(lines):
        write_text(path, kept)
    return said


def _record(line: str) -> dict[str, object] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("update"), int) else None


def _belongs(record: Mapping[str, object], update: int, drop_validation: bool) -> bool:
    at = record["update"]
    assert isinstance(at, int)
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

"""The traces of a run on the screen and in its files: lines, records of updates, TensorBoard events."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from deepwire.checkpoint.run_directory import among_best
from deepwire.config.counts import counted, few
from deepwire.errors import DataError, ModelError, Tell, UsageError
from deepwire.io.atomic import disk_errors, free_name, write_json, write_text
from deepwire.io.json_lines import finite
from deepwire.io.regular_files import open_for_appending, open_regular
from deepwire.model.translation_model import TranslationModel
from deepwire.training.progress import Averages, Display, TrainingStatus
from deepwire.training.run import TrainingState
from deepwire.training.spec import TrainingSpec
from deepwire.training.stopping import StopReason
from deepwire.training.validation import Validation, worth_showing
from deepwire.training.warm_start.pretrained import PretrainedReport
from deepwire.training.warm_start.start_from import StartReport

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

Value = float | int | str | None | dict[str, dict[str, float]] | list["Value"]
"""A number, a word, scores by direction, or rows of numbers."""


class RecordFile:
    """A file of records, one JSON object a line, to append to.

    Non-finite numbers are written as null, which JSON has, and not as NaN, which it does not.

    Args:
        path: Such as ``metrics.jsonl``; made when missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with disk_errors(path):
            self._file = open_for_appending(path)

    def write(self, record: Mapping[str, Value]) -> None:
        """Append one record; it is visible to readers at once."""
        with disk_errors(self.path):
            self._file.write(json.dumps(finite(record)) + "\n")
            self._file.flush()

    def sync(self) -> None:
        """Wait until all records have reached the disk: a checkpoint must not be ahead of them."""
        with disk_errors(self.path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class RunLog:
    """The lines, records and files of a run. Until it is opened there is nothing but lines.

    Only the main process opens it, so the others leave no trace.

    Args:
        spec: What is trained.
        say: Shows a line; default: lines are kept until the log is opened.
    """

    def __init__(self, spec: TrainingSpec, say: Tell | None = None) -> None:
        self._spec, self._run = spec, spec.run
        self._early: list[str] = []
        self._say = say or self._early.append
        self._begun_with: StartReport | PretrainedReport | None = None
        self._display: Display | None = None
        self._files: dict[str, RecordFile] = {}
        self._events: SummaryWriter | None = None

    @contextmanager
    def opened(self, display: Display, state: TrainingState, *, continued: bool) -> Iterator[None]:
        """Write to the files of the run within the block; what was said before comes first.

        Args:
            display: The terminal and ``log.txt``.
            state: What training goes on from; records of later updates are cut off.
            continued: Whether the run has made updates before, whose records should be there.
        """
        record, run = self._spec.config.record, self._run
        missing = continued and not run.metrics.exists()
        lost = f"{run.metrics.name} is missing: the records up to update {state.update} are lost"
        damage = [
            lost if missing else cut_after(run.metrics, state.update, drop_validation=state.validation_due)
        ]
        damage += [
            cut_after(path, state.update) for path in (run.bad_batch, run.gradients, run.depth_weights)
        ]
        paths = {"metrics": run.metrics}
        paths |= {"gradients": run.gradients} if record.gradients else {}
        paths |= {"depth_weights": run.depth_weights} if record.depth_weights else {}
        with ExitStack() as stack:
            for name, path in paths.items():
                self._files[name] = stack.enter_context(closing(RecordFile(path)))
            if self._spec.config.tensorboard:
                self._events = stack.enter_context(closing(_tensorboard(run.tensorboard, state.update)))
            self._display, self._say = display, display.say
            if self._begun_with is not None:
                write_json(run.start_from, self._begun_with.to_json())
            for line in self._early:
                display.say(line)
            for line in filter(None, damage if continued else ()):
                display.say(f"warning: {line}")
            yield

    def say(self, text: str) -> None:
        """Show one line, and append it to ``log.txt``."""
        self._say(text)

    def begun_with(self, report: StartReport | PretrainedReport) -> None:
        """Show which parameters came from another model; ``start_from.json`` will have all names."""
        self._begun_with = report
        for line in report.lines():
            self.say(line)

    def move(self, status: TrainingStatus) -> None:
        """Advance the bar."""
        if self._display is not None:
            self._display.move(status)

    def train(self, state: TrainingState, averages: Averages, status: TrainingStatus) -> None:
        """Record the averages of an interval of updates."""
        if self._display is None:
            return
        values: dict[str, float] = {
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

    def gradients(self, update: int, model: TranslationModel) -> None:
        """Record the gradients of an update by layer, before they are clipped, where it is due."""
        every, file = self._spec.config.record.gradients, self._files.get("gradients")
        if file is not None and every is not None and update % every == 0:
            file.write({"update": update, **gradient_norms(layers_of(model))})

    def depth_weights(self, update: int, model: TranslationModel) -> None:
        """Record how the model weighs its layers after an update, where it is due."""
        every, file = self._spec.config.record.depth_weights, self._files.get("depth_weights")
        if file is None or every is None or update % every:
            return
        if weights := depth_weights(model):  # a run file may inherit the wish for a model without any
            file.write({"update": update, **weights})

    def skipped(self, update: int, pairs: list[int]) -> None:
        """Record an update that was not finite, with its lines and their text, in ``bad_batch.jsonl``."""
        if self._display is None:
            return
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
        metric = self._spec.config.validation.metric
        best = among_best(self._run.checkpoints(), metric, scores.get(metric), 1)
        self._event("valid", update, scores)
        self._display.valid_line(update, scores, f"best {metric} so far" if best else "")
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

    def sync(self) -> None:
        """Wait until all records have reached the disk."""
        for file in self._files.values():
            file.sync()

    def _record(self, kind: str, state: TrainingState, values: Mapping[str, Value]) -> None:
        record = {"kind": kind, "update": state.update, "epoch": state.epochs, **values}
        self._files["metrics"].write(record)

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


def cut_after(path: Path, update: int, *, drop_validation: bool = False) -> str:
    """Remove the records of later updates, and a last line that a crash left unfinished.

    Earlier lines that are no records are removed too; the file as it was is kept as ``NAME.damaged`` then.

    Args:
        path: ``metrics.jsonl`` or another file of JSON objects with the key ``update``.
        update: The last update to keep.
        drop_validation: Remove the record of a validation at ``update`` too: it will be made again.

    Returns:
        What was damaged and what is kept, for the user; empty where all was well.

    Raises:
        UsageError: If the file is a link or a pipe.
        ResourceError: If it cannot be read or written.
    """
    if not os.path.lexists(path):
        return ""
    with disk_errors(path), open_for_appending(path) as file:
        file.seek(0)
        lines = file.read().split("\n")
    records = [_record(line) for line in lines]
    kept = [
        line
        for line, record in zip(lines, records, strict=True)
        if record is not None and _belongs(record, update, drop_validation)
    ]
    # The last is empty, or what a crash left.
    damaged = [
        number
        for number, (line, record) in enumerate(zip(lines[:-1], records, strict=False), 1)
        if line and record is None
    ]
    said = ""
    if damaged:
        copy = free_name(path, "damaged")
        with disk_errors(copy):
            shutil.copyfile(path, copy)
        left_out = few([str(number) for number in damaged])
        left_out = f"line {left_out} is" if len(damaged) == 1 else f"lines {left_out} are"
        said = (
            f"{path.name}: {left_out} damaged and left out; "
            f"{counted(len(kept), 'record is', 'records are')} kept, "
            f"and the file as it was is {copy.name}"
        )
    if "\n".join([*kept, ""]) != "\n".join(lines):
        write_text(path, "".join(f"{line}\n" for line in kept))
    return said


def _record(line: str) -> dict[str, object] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("update"), int) else None


def _belongs(record: dict[str, object], update: int, drop_validation: bool) -> bool:
    at = record["update"]
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


def layers_of(model: TranslationModel) -> list[tuple[str, list[nn.Parameter]]]:
    """Every parameter once: ``encoder.1``, ..., ``encoder.rest``, likewise the decoder, ``other``."""
    layers: list[tuple[str, list[nn.Parameter]]] = []
    seen: set[nn.Parameter] = set()
    for side, stack in model.stacks().items():
        for name, parameters in stack.parameters_by_layer():
            layers.append((f"{side}.{name}", [each for each in parameters if each not in seen]))
            seen |= set(parameters)
    return [*layers, ("other", [each for each in model.parameters() if each not in seen])]


@torch.no_grad()
def gradient_norms(layers: list[tuple[str, list[nn.Parameter]]]) -> dict[str, Value]:
    """Euclidean norm of the gradient of each list of parameters; 0 where none has a gradient."""
    device = next(parameter.device for _, parameters in layers for parameter in parameters)
    nothing = torch.zeros((), device=device)
    lengths: list[Tensor] = []
    for _, parameters in layers:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        lengths.append(nn.utils.get_total_norm(gradients).float() if gradients else nothing)
    # One wait for the device, not one for each layer.
    values: list[float] = torch.stack(lengths).tolist()
    return {name: value for (name, _), value in zip(layers, values, strict=True)}


def depth_weights(model: TranslationModel) -> dict[str, Value]:
    """The depth weights of both stacks by ``side.key``, as lists of rows; of several for a pair the mean."""
    rows_by_key: dict[str, Value] = {}
    for side, stack in model.stacks().items():
        for weights in stack.depth_weights():
            values = weights.values.detach().float()
            values = values.mean(-1) if values.dim() > 2 else values
            rows_by_key[f"{side}.{weights.key}"] = values.tolist()
    return rows_by_key

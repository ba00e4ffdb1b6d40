"""Speed and memory as a finding: a table of everything, and two curves for each axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial

import torch

from deepwire.config.counts import counted
from deepwire.decoding.model_loading import number_formats
from deepwire.errors import LogFn, UsageError
from deepwire.lab.report.finding import Axis as FigureAxis
from deepwire.lab.report.finding import (
    Figure,
    Finding,
    LineChart,
    ModelSource,
    Number,
    Series,
    Table,
    provenance,
)
from deepwire.lab.speed.speed_sweep import (
    AXES,
    Axis,
    MeasuredArchitecture,
    Mode,
    Speed,
    Workload,
    sweep,
)
from deepwire.lab.speed.text_speed import Program, measure_text, text_figure, text_notes, text_table
from deepwire.lab.subject.scorer import Scorer
from deepwire.training.device import PrecisionPolicy

_LABELS: Mapping[Axis, FigureAxis] = {
    "batch": FigureAxis(label="batch", unit="sentences", log=True),
    "beam": FigureAxis(label="beam", unit="hypotheses"),
    "length": FigureAxis(label="length", unit="subwords"),
    "depth": FigureAxis(label="depth of both stacks", unit="layers"),
}
_MIB = 2**20


def speed_finding(
    subjects: Sequence[MeasuredArchitecture],
    sources: Sequence[ModelSource],
    values: Mapping[Axis, Sequence[int]],
    modes: Sequence[Mode],
    base: Workload,
    *,
    rounds: int,
    device: torch.device,
    tell: LogFn,
    precision: str = "auto",
    scorers: Sequence[Scorer] = (),
    programs: Sequence[Program] = (),
) -> Finding:
    """Measure speed and memory, and show them.

    Args:
        subjects: Architectures to measure.
        sources: Those of them that are trained models.
        values: What each axis goes through; axes without values are left out.
        modes: Training, decoding or both.
        base: Where the other axes stand meanwhile.
        rounds: How often each is done; the fastest counts.
        device: Where the work is done.
        tell: Receives progress messages, one line each.
        precision: Of decoding, as ``deepwire translate`` has it.
        scorers: Trained models that translate a text as well.
        programs: Other programs that translate it.

    Raises:
        UsageError: There is nothing to measure, a depth is impossible, or another program fails.
    """
    texts = measure_text(scorers, programs, rounds=rounds, tell=tell) if scorers else []
    measure = partial(sweep, rounds=rounds, device=device, tell=tell, precision=precision)
    sweeps = [
        (mode, axis, measure(subjects, mode, axis, values[axis], base))
        for mode in modes
        for axis in AXES[mode]
        if values.get(axis)
    ]
    if not sweeps and not texts:
        raise UsageError("no axis to measure", "give values such as --batch 1,8,64")
    notes = text_notes(texts, programs)
    if any(speed.memory is None for _, _, speeds in sweeps for speed in speeds):
        notes.append("This system does not tell the peak memory of a process.")
    conditions = f"{_device(device)}, {counted(torch.get_num_threads(), 'CPU thread')}"
    tables = [text_table(texts)] if texts else []
    figures: list[Figure] = [text_figure(texts)] if texts else []
    for mode, axis, speeds in sweeps:
        tables.append(_table(mode, axis, speeds))
        figures += _figures(mode, axis, speeds, f"{_conditions(mode, axis, base)}; {conditions}.")
    return Finding(
        analysis="speed",
        title="Speed and memory of training and decoding" if sweeps else "Speed of translating a text",
        measured=" ".join(_measured(base, rounds, text=bool(texts), swept=bool(sweeps))),
        tables=tables,
        figures=figures,
        notes=notes,
        provenance=provenance(
            sources,
            [scorer.pairs.description for scorer in scorers[:1]],
            _settings(base if sweeps else None, rounds, device, precision, scorers),
        ),
    )


def _settings(
    swept: Workload | None, rounds: int, device: torch.device, precision: str, scorers: Sequence[Scorer]
) -> dict[str, str]:
    """With what it was measured; `swept` is where the other axes stood, None where nothing was swept."""
    settings: dict[str, str] = {}
    if swept is not None:
        settings = {name: str(value) for name, value in asdict(swept).items() if value is not None}
    settings |= {"rounds": str(rounds), "device": _device(device), "threads": str(torch.get_num_threads())}
    if swept is not None:
        kind, packing = number_formats(device, precision)
        settings |= {
            "precision of training": PrecisionPolicy.choose("auto", device).precision,
            "precision of decoding": str(kind).removeprefix("torch.") if packing == "none" else packing,
        }
    for scorer in scorers[:1]:
        settings_of_text = scorer.settings
        settings |= {f"text: {name.removeprefix('text ')}": value for name, value in settings_of_text.items()}
    return settings


def _measured(base: Workload, rounds: int, *, text: bool, swept: bool) -> Iterator[str]:
    if text:
        yield (
            "The text is translated as a whole and its first sentence alone, by all in turn; speed is that "
            "of the other sentences in the difference of the two times, so neither a program's start nor the "
            "loading of its model counts."
        )
    if swept:
        yield (
            "Against batch, beam, length and depth: one axis at a time moves, the others stay at "
            f"batch {base.batch}, beam {base.beam}, length {base.length} and the own depth. Sentences "
            "are random subwords of one length and translations have as many as their source, so models "
            "with random weights do the same work as trained ones. Training is forward and backward pass, "
            "clipping and Adam; decoding is beam search. Memory is the peak on top of weights and optimizer."
        )
    yield f"The fastest of {rounds} rounds counts, in turn."


def _table(mode: Mode, axis: Axis, speeds: Sequence[Speed]) -> Table:
    measured = ["speed [sentences/s] .1", "target [tokens/s] .0", "one batch [ms] .1", "memory [MiB] .1"]
    return Table(
        title=f"{mode.capitalize()} against {axis}",
        columns=["model", _LABELS[axis].text, *measured],
        rows=[
            (
                speed.subject,
                _value(speed, axis),
                speed.sentences_per_second,
                speed.tokens_per_second,
                1000 * speed.seconds,
                _mib(speed),
            )
            for speed in speeds
        ],
    )


def _conditions(mode: Mode, axis: Axis, base: Workload) -> str:
    """Where the other axes stand, for a figure that is seen by itself."""
    others = [f"{name} {getattr(base, name)}" for name in AXES[mode] if name not in (axis, "depth")]
    return f"{' and '.join(others).capitalize()} (of random subwords)"


def _figures(mode: Mode, axis: Axis, speeds: Sequence[Speed], caption: str) -> Iterator[LineChart]:
    tokens = FigureAxis(label="speed", unit="target tokens/s", from_zero=True)
    memory = FigureAxis(label="peak memory", unit="MiB", from_zero=True)
    shown: list[tuple[str, FigureAxis, Callable[[Speed], Number]]] = [
        ("speed", tokens, lambda speed: speed.tokens_per_second)
    ]
    if all(speed.memory is not None for speed in speeds):
        shown.append(("memory", memory, _mib))
    of_subjects: dict[str, list[Speed]] = {}
    for speed in speeds:
        of_subjects.setdefault(speed.subject, []).append(speed)
    for name, y, value in shown:
        yield LineChart(
            name=f"{mode}-{axis}-{name}",
            title=f"{mode.capitalize()}: {name} against {axis}",
            caption=caption,
            x=_LABELS[axis],
            y=y,
            series=[
                Series(name=subject, x=[_value(each, axis) for each in own], y=map(value, own))
                for subject, own in of_subjects.items()
            ],
        )


def _value(speed: Speed, axis: Axis) -> int:
    value = getattr(speed.workload, axis)
    return value if isinstance(value, int) else 0


def _mib(speed: Speed) -> Number:
    return None if speed.memory is None else speed.memory / _MIB


def _device(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"

"""``deepwire analyze speed``: speed and memory of training and decoding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepwire.cli.analyses.options import (
    FindingOutputs,
    Html,
    Json,
    Output,
    Plots,
    Reference,
    Sentences,
    Source,
    numbers,
    open_scorers,
    read_direction,
)
from deepwire.cli.decoding_options import Device, DirectionName, Precision, Threads, use_threads
from deepwire.cli.line_by_line import tell

if TYPE_CHECKING:
    from deepwire.lab.report.finding import ModelSource
    from deepwire.lab.speed.speed_sweep import Axis, MeasuredArchitecture, Mode, Workload

Subjects = Annotated[
    list[str], typer.Argument(metavar="RUNFILE|RECIPE|MODEL...", help="What to measure; untrained will do.")
]
Wanted = Annotated[
    str,
    typer.Option(
        metavar="training|decoding|both|text",
        help="Random sentences against every axis, or a text translated by trained models.",
    ),
]
Beside = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=COMMAND",
        help="Another program that translates stdin to stdout line by line, timed in turn with the models on "
        "a text; its start is subtracted. May be given several times.",
    ),
]
Batch = Annotated[str, typer.Option(metavar="1,8,64", help="Sentences at once.")]
Beam = Annotated[str, typer.Option(metavar="1,4,8", help="Hypotheses per sentence.")]
Length = Annotated[str, typer.Option(metavar="10,20,40", help="Subwords of every sentence.")]
Depth = Annotated[
    str, typer.Option(metavar="2,4,8", help="Layers of both stacks, with random weights; none: --depth ''.")
]
Base = Annotated[
    str, typer.Option(metavar="32,4,20", help="Batch, beam and length while another axis moves.")
]
Rounds = Annotated[int, typer.Option(min=1, help="Times that each is done; the fastest counts.")]
Size = Annotated[
    int | None, typer.Option(min=5, help="Entries of the vocabulary, where a run file does not say it.")
]

_TEXT = "text"
_MOST = 100_000  # of a batch, a beam, a length or a depth


def speed(
    subjects: Subjects,
    mode: Wanted = "both",
    batch: Batch = "1,8,32,128",
    beam: Beam = "1,2,4,8",
    length: Length = "10,20,40,80",
    depth: Depth = "1,2,4,8",
    base: Base = "32,4,20",
    rounds: Rounds = 3,
    beside: Beside = None,
    source: Source = None,
    reference: Reference = None,
    sentences: Sentences = 200,
    direction: DirectionName = None,
    vocabulary_size: Size = None,
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
    as_json: Json = False,
    html: Html = None,
    plots: Plots = None,
    output: Output = None,
) -> None:
    """Sentences and tokens a second, and memory, against batch, beam, length and depth.

    deepwire analyze speed multi30k/transformer-tiny multi30k/mhplstm-tiny --mode decoding --plots plots

    deepwire analyze speed runs/base --mode text --beside 'other=other-translate --beam 4 model' --threads 2
    """
    from deepwire.decoding.model_loading import pick_device
    from deepwire.lab.speed.speed_finding import TextWork, speed_finding
    from deepwire.lab.speed.text_speed import Program
    from deepwire.lab.subject.model_and_text import read_pairs

    outputs = FindingOutputs(
        as_json, html, plots, output, read=(*map(Path, subjects), source, reference), models=subjects
    )
    modes, work = _modes(mode), _base(base)
    values = _values({"batch": batch, "beam": beam, "length": length, "depth": depth})
    use_threads(threads)
    systems = [_architecture(name, vocabulary_size) for name in subjects]
    programs = [Program.parse(command, threads) for command in beside or ()]
    text = None
    if programs or mode == _TEXT:
        _check_trained(systems)
        parsed = read_direction(direction)
        pairs = read_pairs(subjects[0], source, reference, sentences, parsed)
        text = TextWork(
            open_scorers(subjects, pairs, {"beam": work.beam}, device, precision, parsed), programs
        )
    made = speed_finding(
        [architecture for architecture, _ in systems],
        [source for _, source in systems if source is not None],
        values,
        modes,
        work,
        rounds=rounds,
        device=pick_device(device),
        precision=precision,
        tell=tell,
        text=text,
    )
    outputs.write([made])


def _modes(mode: str) -> list[Mode]:
    """The passes over random sentences; none where a text is to be translated."""
    from deepwire.cli.analyses.options import ALL, one_of
    from deepwire.lab.speed.speed_sweep import AXES

    chosen = one_of(mode, (*AXES, ALL, _TEXT), "--mode")
    return [axis for axis in AXES if chosen in (axis, ALL)]


def _values(written: Mapping[Axis, str]) -> dict[Axis, list[int]]:
    """The values of every axis that is looked at.

    Raises:
        UsageError: One is no number, or such as nothing is measured with.
    """
    from deepwire.errors import UsageError

    values = {axis: numbers(text, f"--{axis}") for axis, text in written.items() if text}
    for axis, each in values.items():
        for value in each:
            if not 1 <= value <= _MOST:
                raise UsageError(f"--{axis} must be at least 1 and at most {_MOST:,}, not {value}")
    return values


def _check_trained(systems: Sequence[tuple[MeasuredArchitecture, ModelSource | None]]) -> None:
    """Check that all can translate a text.

    Raises:
        UsageError: One is a run file or recipe.
    """
    from deepwire.errors import UsageError

    for architecture, source in systems:
        if source is None:
            raise UsageError(
                f"{architecture.name}: is not trained, so it cannot translate a text",
                "give run directories or models, or leave out --mode text and --beside",
            )


def _base(text: str) -> Workload:
    from deepwire.errors import UsageError
    from deepwire.lab.speed.speed_sweep import Workload

    sizes = numbers(text, "--base")
    if len(sizes) != 3 or min(sizes) < 1:
        raise UsageError(f"--base: {text!r} is not batch, beam and length", "write --base 32,4,20")
    return Workload(*sizes)


def _architecture(name: str, vocabulary_size: int | None) -> tuple[MeasuredArchitecture, ModelSource | None]:
    """The architecture of a run file, recipe or model; with its fingerprint where it is a model."""
    from deepwire.cli.inspect import find_subject
    from deepwire.errors import UsageError
    from deepwire.lab.speed.speed_sweep import MeasuredArchitecture
    from deepwire.lab.subject.model_and_text import open_model

    subject = find_subject(name, vocabulary_size)
    sizes = subject.source_vocabulary, subject.target_vocabulary
    if not subject.source_vocabulary:
        raise UsageError(
            f"{name}: is a language model, and this is the speed of translation",
            "deepwire train RUN.yaml --dry-run measures its training",
        )
    made = MeasuredArchitecture(name, subject.model, *sizes, subject.languages)
    return made, open_model(name).source if subject.kind == "model" else None

"""``deepwire analyze speed``: speed and memory of training and decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from deepwire.cli.analyses import options as common
from deepwire.cli.analyses.options import numbers
from deepwire.cli.line_by_line import tell
from deepwire.cli.options import Device, Precision, Threads, use_threads
from deepwire.errors import UsageError

if TYPE_CHECKING:
    from deepwire.lab.finding import ModelSource
    from deepwire.lab.speed import Axis, MeasuredArchitecture

Subjects = Annotated[
    list[str],
    typer.Argument(metavar="RUNFILE|RECIPE|MODEL...", help="Run files or recipes (untrained), or models."),
]
Wanted = Annotated[Literal["training", "decoding", "both"], typer.Option(help="Training, decoding or both.")]
Batch = Annotated[Any, typer.Option(parser=numbers, metavar="1,8,64", help="Batch sizes, in sentences.")]
Beam = Annotated[Any, typer.Option(parser=numbers, metavar="1,4,8", help="Beam sizes.")]
Length = Annotated[Any, typer.Option(parser=numbers, metavar="10,20,40", help="Subwords in a sentence.")]
Depth = Annotated[Any, typer.Option(parser=numbers, metavar="2,4", help="Layers of both stacks, untrained.")]
Base = Annotated[
    Any, typer.Option(parser=numbers, metavar="32,4,20", help="Batch, beam, length while others vary.")
]
Rounds = Annotated[int, typer.Option(min=1, help="Repetitions; the fastest counts.")]
Size = Annotated[int | None, typer.Option(min=5, help="Vocabulary size, if a run file has none.")]


@common.analysis
def speed(
    subjects: Subjects,
    mode: Wanted = "both",
    batch: Batch = "1,8,32,128",
    beam: Beam = "1,2,4,8",
    length: Length = "10,20,40,80",
    depth: Depth = "1,2,4,8",
    base: Base = "32,4,20",
    rounds: Rounds = 3,
    vocabulary_size: Size = None,
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
) -> common.Findings:
    """Speed and memory by batch size, beam, sentence length and depth.

    deepwire analyze speed multi30k/transformer-tiny multi30k/mhplstm-tiny --mode decoding --plots plots
    """
    from deepwire.decoding.model_loading import pick_device
    from deepwire.lab.speed import AXES, Workload, speed_finding

    axes: dict[Axis, list[int]] = {"batch": batch, "beam": beam, "length": length, "depth": depth}
    if len(base) != 3:
        raise UsageError("--base: must be batch, beam and length", "write --base 32,4,20")
    use_threads(threads)
    systems = [_architecture(name, vocabulary_size) for name in subjects]
    made = speed_finding(
        [architecture for architecture, _ in systems],
        [source for _, source in systems if source is not None],
        {axis: values for axis, values in axes.items() if values},
        [each for each in AXES if mode in (each, "both")],
        Workload(*base),
        rounds=rounds,
        device=pick_device(device),
        precision=precision,
        tell=tell,
    )
    return [made]


def _architecture(name: str, vocabulary_size: int | None) -> tuple[MeasuredArchitecture, ModelSource | None]:
    """The architecture of a run file, recipe or model; with its fingerprint where it is a model."""
    from deepwire.cli.inspect import find_subject
    from deepwire.lab.speed import MeasuredArchitecture
    from deepwire.lab.subject import open_model

    subject = find_subject(name, vocabulary_size)
    sizes = subject.source_vocabulary, subject.target_vocabulary
    if not subject.source_vocabulary:
        raise UsageError(
            f"{name}: is a language model, and this is the speed of translation",
            "deepwire train RUN.yaml --dry-run measures its training",
        )
    made = MeasuredArchitecture(name, subject.model, *sizes, subject.languages)
    return made, open_model(name).source if subject.kind == "model" else None

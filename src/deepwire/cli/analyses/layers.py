"""``deepwire analyze depth``, ``similarity``, ``linearise``, ``coordinate-check``: what layers do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from deepwire.cli.analyses import options as common
from deepwire.cli.analyses.options import numbers
from deepwire.cli.line_by_line import tell
from deepwire.cli.options import Device, DirectionName, Model, Overrides, Precision, Threads, use_threads
from deepwire.errors import UsageError

if TYPE_CHECKING:
    from deepwire.model.stack_spec import Side

SideName = Annotated[Literal["encoder", "decoder", "both"], typer.Option(help="Whose layers.")]
OverRuns = Annotated[bool, typer.Option("--runs", help="Plot BLEU of runs over depth; no layer is left out.")]


def _sides(name: Side | Literal["both"]) -> tuple[Side, ...]:
    return ("encoder", "decoder") if name == "both" else (name,)


@common.analysis
def depth(
    models: common.Runs,
    over_runs: OverRuns = False,
    side: SideName = "both",
    source: common.Source = None,
    reference: common.Reference = None,
    sentences: common.Sentences = None,
    direction: DirectionName = None,
    beam: common.Beam = None,
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
) -> common.Findings:
    """BLEU of trained models without their top layers, and with single groups and ranges of groups.

    deepwire analyze depth runs/gtrans --plots plots

    deepwire analyze depth --runs runs/deep-6 runs/deep-12 runs/dlcl-6 runs/dlcl-12
    """
    from deepwire.evaluation.texts import selected_targets
    from deepwire.lab.depth.depth_of_runs import depth_of_runs_finding
    from deepwire.lab.depth.fewer_layers import fewer_layers_finding, fewer_layers_side_by_side
    from deepwire.lab.subject.model_and_text import read_pairs

    if over_runs and side != "both":
        raise UsageError("--side says whose layers are left out, and --runs leaves out none", "leave one out")
    use_threads(threads)
    selected_targets(models, direction)  # before the first one is measured
    pairs = read_pairs(models[0], source, reference, sentences, direction)
    # One after the other: only one has to fit into memory.
    scorers = (common.open_scorers([name], pairs, beam, device, precision, direction)[0] for name in models)
    if over_runs:
        return [depth_of_runs_finding(scorers, tell)]
    findings = [fewer_layers_finding(scorer, _sides(side), tell) for scorer in scorers]
    return [*findings, *fewer_layers_side_by_side(findings)]


@common.analysis
def similarity(
    model: Model,
    side: SideName = "both",
    source: common.Source = None,
    reference: common.Reference = None,
    sentences: common.Sentences = 500,
    direction: DirectionName = None,
    device: Device = "auto",
    threads: Threads = None,
) -> common.Findings:
    """How alike the streams at different depths are, and the loss of a trained model without each layer.

    deepwire analyze similarity runs/deep --plots plots
    """
    from deepwire.lab.depth.layer_similarity import analyse_similarity

    use_threads(threads)
    text = (source, reference, sentences, device, direction)
    return [analyse_similarity(model, *text, sides=_sides(side), tell=tell)]


Reading = Annotated[
    Literal["match", "translation", "both"],
    typer.Option(help="Fit the map to the layer's output, train it by the translation loss, or both."),
]
CellName = Annotated[
    Literal["carry", "map"],
    typer.Option(
        help="A depth-wise LSTM's cell goes past the linear layer unchanged, or the map gives it too."
    ),
]
Layers = Annotated[Any, typer.Option(metavar="1,2,...", parser=numbers, help="Only these layers, from 1.")]
Updates = Annotated[int, typer.Option(min=1, help="Updates of training text that each map or model sees.")]
UpdateTokens = Annotated[int, typer.Option(min=1, help="Target tokens of an update.")]
Rate = Annotated[float, typer.Option(min=0.0, help="First learning rate of the translation reading.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the order of the training text.")]
Folder = Annotated[Path | None, typer.Option(help="Where finished layers are kept. Default: in the run.")]


@common.analysis
def linearise(
    model: Model,
    reading: Reading = "both",
    cell: CellName = "carry",
    side: SideName = "both",
    layers: Layers = None,
    updates: Updates = 200,
    update_tokens: UpdateTokens = 4096,
    rate: Rate = 1e-3,
    seed: Seed = 1,
    source: common.Source = None,
    reference: common.Reference = None,
    sentences: common.Sentences = None,
    direction: DirectionName = None,
    beam: common.Beam = None,
    device: Device = "auto",
    threads: Threads = None,
    folder: Folder = None,
) -> common.Findings:
    """BLEU with one layer at a time replaced by a linear map, everything else frozen.

    The map is trained on the run's training text (2020 preprint of the depth-wise LSTM paper, section 4).
    Finished layers are kept; the same command goes on after an interruption.

    deepwire analyze linearise runs/demo --updates 100 --html linear.html
    """
    from deepwire.lab.linearisation import (
        READINGS,
        LinearisationSettings,
        layer_scores,
        linearisation_finding,
    )
    from deepwire.lab.subject.model_and_text import read_pairs, run_of
    from deepwire.lab.subject.training_text import training_text

    settings = LinearisationSettings(
        readings=READINGS if reading == "both" else (reading,),
        cell=cell,
        sides=_sides(side),
        layers=None if layers is None else tuple(layers),
        updates=updates,
        batch_tokens=update_tokens,
        rate=rate,
        seed=seed,
    )
    use_threads(threads)
    pairs = read_pairs(model, source, reference, sentences, direction)
    scorer = common.open_scorers([model], pairs, beam, device, "fp32", direction)[0]
    text, run = training_text(model, scorer.loaded.models[0]), run_of(model)
    if folder is None:
        folder = Path("linearise") if run is None else run.path / "analysis" / "linearise"
    whole, scores = layer_scores(scorer, text, settings, folder, tell)
    return [linearisation_finding(scorer, settings, whole, scores)]


Subject = Annotated[str, typer.Argument(metavar="RUNFILE|RECIPE", help="Whose model and settings count.")]
Widths = Annotated[Any, typer.Option(metavar="32,64", parser=numbers, help="Of d_model; none: --widths ''.")]
Depths = Annotated[
    Any, typer.Option(metavar="2,4", parser=numbers, help="Of both stacks; none: --depths ''.")
]
FixedRate = Annotated[
    float | None, typer.Option(help="Learning rate. [default: the highest of the schedule]")
]
Seeds = Annotated[int, typer.Option(min=1, help="Models of each size, averaged.")]


@common.analysis
def coordinate_check(
    subject: Subject,
    overrides: Overrides = None,
    widths: Widths = "32,64,128,256",
    depths: Depths = "",
    updates: Updates = 10,
    tokens: UpdateTokens = 1024,
    rate: FixedRate = None,
    seeds: Seeds = 1,
    device: Device = "auto",
    threads: Threads = None,
) -> common.Findings:
    """Whether a learning rate carries over to wider or deeper models: how far a few updates move each layer.

    deepwire analyze coordinate-check run.yaml --widths 64,128,256 --depths 3,6,12 --plots plots
    """
    from deepwire.decoding.model_loading import pick_device
    from deepwire.lab.coordinate_check import CoordinateCheck
    from deepwire.lab.coordinate_check import coordinate_check as check
    from deepwire.lab.subject.training_text import open_untrained
    from deepwire.recipes import is_run_file

    if rate is not None and not 0 < rate < float("inf"):
        raise UsageError(f"--rate: must be a number above 0, not {rate}")
    if not is_run_file(subject):
        raise UsageError(
            f"{subject}: is no run file or recipe", "this trains new models: give the run file of the run"
        )
    wanted = CoordinateCheck(
        widths=widths, depths=depths, updates=updates, tokens=tokens, rate=rate, seeds=seeds
    )
    use_threads(threads)
    return [check(open_untrained(subject, overrides or ()), wanted, pick_device(device), tell)]

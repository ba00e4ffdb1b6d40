"""``deepwire analyze depth``, ``similarity``, ``linearise``: layers left out, or replaced by linear maps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepwire.cli.analyses.options import (
    FindingOutputs,
    Html,
    Json,
    Model,
    Output,
    Plots,
    Reference,
    Runs,
    Sentences,
    Source,
    numbers,
    open_scorers,
    read_direction,
)
from deepwire.cli.decoding_options import (
    BatchTokens,
    Beam,
    Device,
    DirectionName,
    Precision,
    Threads,
    use_threads,
)
from deepwire.cli.line_by_line import tell
from deepwire.errors import UsageError

if TYPE_CHECKING:
    from deepwire.data.languages import Direction
    from deepwire.lab.linearisation import LinearisationSettings
    from deepwire.lab.report.finding import Finding
    from deepwire.lab.subject.model_and_text import ParallelText

Side = Annotated[str, typer.Option(metavar="encoder|decoder|both", help="Whose layers are left out.")]
OverRuns = Annotated[
    bool, typer.Option("--runs", help="Plot BLEU of the runs over their depth instead of leaving layers out.")
]


def depth(
    models: Runs,
    over_runs: OverRuns = False,
    side: Side = "both",
    source: Source = None,
    reference: Reference = None,
    sentences: Sentences = None,
    direction: DirectionName = None,
    beam: Beam = None,
    batch_tokens: BatchTokens = None,
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
    as_json: Json = False,
    html: Html = None,
    plots: Plots = None,
    output: Output = None,
) -> None:
    """BLEU of trained models without their top layers, and with single groups and ranges of groups.

    deepwire analyze depth runs/gtrans --plots plots

    deepwire analyze depth --runs runs/deep-6 runs/deep-12 runs/dlcl-6 runs/dlcl-12
    """
    from deepwire.cli.analyses.options import one_or_all
    from deepwire.evaluation.texts import selected_targets
    from deepwire.lab.depth.fewer_layers import fewer_layers_finding, fewer_layers_side_by_side
    from deepwire.lab.subject.model_and_text import read_pairs
    from deepwire.model.stack_spec import SIDES

    outputs = FindingOutputs(as_json, html, plots, output, read=(source, reference), models=models)
    sides = one_or_all(side, SIDES, "--side")
    if over_runs and len(sides) == 1:
        raise UsageError("--side says whose layers are left out, and --runs leaves out none", "leave one out")
    use_threads(threads)
    parsed = read_direction(direction)
    selected_targets(models, parsed)  # before the first one is measured
    pairs = read_pairs(models[0], source, reference, sentences, parsed)
    changes: dict[str, object] = {"beam": beam, "batch_tokens": batch_tokens}
    if over_runs:
        outputs.write([_over_runs(models, pairs, changes, device, precision, parsed)])
        return
    findings = []
    for name in models:  # one after the other: only one has to fit into memory
        scorer = open_scorers([name], pairs, changes, device, precision, parsed)[0]
        findings.append(fewer_layers_finding(scorer, sides, tell))
    outputs.write([*findings, *fewer_layers_side_by_side(findings)])


def similarity(
    model: Model,
    side: Side = "both",
    source: Source = None,
    reference: Reference = None,
    sentences: Sentences = 500,
    direction: DirectionName = None,
    device: Device = "auto",
    threads: Threads = None,
    as_json: Json = False,
    html: Html = None,
    plots: Plots = None,
    output: Output = None,
) -> None:
    """How alike the streams at different depths are, and the loss of a trained model without each layer.

    deepwire analyze similarity runs/deep --plots plots
    """
    from deepwire.cli.analyses.options import one_or_all
    from deepwire.lab.depth.layer_similarity import analyse_similarity
    from deepwire.model.stack_spec import SIDES

    outputs = FindingOutputs(as_json, html, plots, output, read=(source, reference), models=[model])
    sides = one_or_all(side, SIDES, "--side")
    use_threads(threads)
    text = (source, reference, sentences, device, read_direction(direction))
    outputs.write([analyse_similarity(model, *text, sides=sides, tell=tell)])


def _over_runs(
    models: list[str],
    pairs: ParallelText,
    changes: dict[str, object],
    device: str,
    precision: str,
    direction: Direction | None,
) -> Finding:
    from deepwire.lab.depth.depth_of_runs import DepthOfRun, depth_of_runs_finding, kinds_of

    configs, scores, sources, settings = [], [], [], {}
    for name in models:
        scorer = open_scorers([name], pairs, changes, device, precision, direction)[0]
        configs.append(scorer.model.config)
        scores.append(scorer.bleu(scorer.model))
        sources.append(scorer.source)
        settings = scorer.settings
        tell(f"{name}: BLEU {scores[-1]:.2f}")
    runs = [
        DepthOfRun(
            name, kind, 0 if config.is_decoder_only else config.encoder.layers, config.decoder.layers, bleu
        )
        for name, kind, config, bleu in zip(models, kinds_of(configs), configs, scores, strict=True)
    ]
    return depth_of_runs_finding(runs, sources, pairs.description, settings)


Reading = Annotated[
    str,
    typer.Option(
        metavar="match|translation|both",
        help="Fit the map to the layer's output, train it by the translation loss, or both.",
    ),
]
Cell = Annotated[
    str,
    typer.Option(
        metavar="carry|map",
        help="A depth-wise LSTM's cell goes past the linear layer unchanged, or the map gives it too.",
    ),
]
ReplacedSide = Annotated[str, typer.Option(metavar="encoder|decoder|both", help="Whose layers.")]
Layers = Annotated[str | None, typer.Option(metavar="1,2,...", help="Only these layers, from 1.")]
Updates = Annotated[int, typer.Option(min=1, help="Updates of training text that each map sees.")]
UpdateTokens = Annotated[int, typer.Option(min=1, help="Target tokens of an update.")]
Rate = Annotated[float, typer.Option(min=0.0, help="First learning rate of the translation reading.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the order of the training text.")]
Folder = Annotated[
    Path | None,
    typer.Option(help="Where finished layers are kept. Default: analysis/linearise in the run directory."),
]


def linearise(
    model: Model,
    reading: Reading = "both",
    cell: Cell = "carry",
    side: ReplacedSide = "both",
    layers: Layers = None,
    updates: Updates = 200,
    update_tokens: UpdateTokens = 4096,
    rate: Rate = 1e-3,
    seed: Seed = 1,
    source: Source = None,
    reference: Reference = None,
    sentences: Sentences = None,
    direction: DirectionName = None,
    beam: Beam = None,
    batch_tokens: BatchTokens = None,
    device: Device = "auto",
    threads: Threads = None,
    folder: Folder = None,
    as_json: Json = False,
    html: Html = None,
    plots: Plots = None,
    output: Output = None,
) -> None:
    """BLEU with one layer at a time replaced by a linear map, everything else frozen.

    The map is trained on the run's training text (2020 preprint of the depth-wise LSTM paper, section 4).
    Finished layers are kept; the same command goes on after an interruption.

    deepwire analyze linearise runs/demo --updates 100 --html linear.html
    """
    from deepwire.lab.linearisation import layer_scores, linearisation_finding
    from deepwire.lab.subject.model_and_text import read_pairs, run_of
    from deepwire.lab.subject.training_text import training_text

    outputs = FindingOutputs(as_json, html, plots, output, read=(source, reference), models=[model])
    settings = _settings(reading, cell, side, layers, updates, update_tokens, rate, seed)
    use_threads(threads)
    parsed = read_direction(direction)
    pairs = read_pairs(model, source, reference, sentences, parsed)
    changes: dict[str, object] = {"beam": beam, "batch_tokens": batch_tokens}
    scorer = open_scorers([model], pairs, changes, device, "fp32", parsed)[0]
    text = training_text(model, scorer.loaded.models[0])
    run = run_of(model)
    if folder is None and run is not None:
        folder = run.path / "analysis" / "linearise"
    whole, scores = layer_scores(scorer, text, settings, folder or Path("linearise"), tell)
    outputs.write([linearisation_finding(scorer, settings, whole, scores)])


def _settings(
    reading: str,
    cell: str,
    side: str,
    layers: str | None,
    updates: int,
    update_tokens: int,
    rate: float,
    seed: int,
) -> LinearisationSettings:
    from typing import get_args

    from deepwire.cli.analyses.options import one_of, one_or_all
    from deepwire.lab.linearisation import READINGS, Cell, LinearisationSettings
    from deepwire.model.stack_spec import SIDES

    return LinearisationSettings(
        readings=one_or_all(reading, READINGS, "--reading"),
        cell=one_of(cell, get_args(Cell), "--cell"),
        sides=one_or_all(side, SIDES, "--side"),
        layers=None if layers is None else tuple(numbers(layers, "--layers")),
        updates=updates,
        batch_tokens=update_tokens,
        rate=rate,
        seed=seed,
    )

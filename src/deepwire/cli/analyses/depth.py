"""``deepwire analyze depth``: layers and groups left out of one model, or several runs over their depth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from deepwire.cli.analyses.options import (
    DirectionName,
    FindingOutputs,
    Html,
    Json,
    Output,
    Plots,
    Reference,
    Runs,
    Sentences,
    Source,
)
from deepwire.cli.analyses.scoring import open_scorers, read_direction, tell
from deepwire.cli.decoding_options import BatchTokens, Beam, Device, Precision, Threads

if TYPE_CHECKING:
    from deepwire.analysis.report.finding import Finding
    from deepwire.analysis.subject.model_and_text import ParallelText
    from deepwire.data.languages import Direction

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
    from deepwire.analysis.depth.fewer_layers import fewer_layers_finding, fewer_layers_side_by_side
    from deepwire.analysis.subject.model_and_text import read_pairs
    from deepwire.analysis.subject.model_stacks import SIDES
    from deepwire.cli.analyses.choices import one_or_all
    from deepwire.cli.line_by_line import use_threads

    outputs = FindingOutputs(as_json, html, plots, output)
    sides = one_or_all(side, SIDES, "--side")
    use_threads(threads)
    way = read_direction(direction)
    pairs = read_pairs(models[0], source, reference, sentences, way)
    changes: dict[str, object] = {"beam": beam, "batch_tokens": batch_tokens}
    if over_runs:
        outputs.write([_over_runs(models, pairs, changes, device, precision, way)])
        return
    findings = []
    for name in models:  # one after the other: only one has to fit into memory
        scorer = open_scorers([name], pairs, changes, device, precision, way)[0]
        findings.append(fewer_layers_finding(scorer, sides, tell))
    outputs.write([*findings, *fewer_layers_side_by_side(findings)])


def _over_runs(
    models: list[str],
    pairs: ParallelText,
    changes: dict[str, object],
    device: str,
    precision: str,
    way: Direction | None,
) -> Finding:
    from deepwire.analysis.depth.depth_of_runs import DepthOfRun, depth_of_runs_finding, kinds_of

    configs, scores, sources, settings = [], [], [], {}
    for name in models:
        scorer = open_scorers([name], pairs, changes, device, precision, way)[0]
        configs.append(scorer.model.config)
        scores.append(scorer.bleu(scorer.model))
        sources.append(scorer.source)
        settings = scorer.settings
        tell(f"{name}: BLEU {scores[-1]:.2f}")
    runs = [
        DepthOfRun(name, kind, config.encoder.layers, config.decoder.layers, bleu)
        for name, kind, config, bleu in zip(models, kinds_of(configs), configs, scores, strict=True)
    ]
    return depth_of_runs_finding(runs, sources, pairs.description, settings)

"""BLEU against depth as findings: layers and groups left out, and runs of several depths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from deepwire.analysis.depth import DepthScore, GroupScore, group_scores, layer_scores
from deepwire.analysis.depth_of_runs import DepthOfRun, curves, varying_side
from deepwire.analysis.figures import Axis, Bars, Figure, Lines, Series
from deepwire.analysis.finding import Finding, ModelSource, provenance
from deepwire.analysis.records import Column, Table
from deepwire.analysis.scored import Scorer
from deepwire.analysis.variants import part
from deepwire.errors import UsageError
from deepwire.model.context import Side

_BLEU = Axis(label="BLEU")
_LAYERS = "layers"


def of_model(scorer: Scorer, sides: Sequence[Side], tell: Callable[[str], None]) -> Finding:
    """BLEU without the top layers of each stack, and with some groups of the decoder alone.

    Raises:
        UsageError: Nothing can be left out of this model.
    """
    scores: list[DepthScore] = []
    notes = []
    for side in sides:
        try:
            scores += layer_scores(scorer, side, tell)
        except UsageError as error:
            notes.append(f"{error.message}.")
    groups = group_scores(scorer, tell) if "decoder" in sides else []
    if not scores and not groups:
        raise UsageError(f"{scorer.name}: {' '.join(notes)}")
    return Finding(
        analysis="depth",
        title=f"Fewer layers of a trained model: {scorer.name}",
        measured=(
            "Layers above the number given are left out of the trained model, one stack at a time, and "
            "nothing is trained again; the final norm stays, and a fusion of several layers takes those that "
            "are left. Groups: the decoder predicts with one group alone, or with a range that ends with the "
            "last one, their weights scaled to sum to 1 (Yang et al. 2022, Table VI)."
        ),
        tables=((_layers_table(scores),) if scores else ()) + ((_groups_table(groups),) if groups else ()),
        figures=tuple(_figures(scorer, scores, groups)),
        notes=tuple(notes),
        provenance=provenance((scorer.source,), (scorer.pairs.description,), scorer.settings),
    )


def beside(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Several models without their top layers in one figure (Yang et al. 2022, Fig. 7).

    Args:
        findings: What `of_model` gave of each, on the same text.

    Yields:
        One finding, where at least two models can do without layers.
    """
    drawn = [
        (finding.provenance.models[0].name, figure)
        for finding in findings
        for figure in finding.figures
        if isinstance(figure, Lines) and figure.name == _LAYERS
    ]
    if len(drawn) < 2:
        return
    lines = (
        one.model_copy(update={"name": f"{model}, {one.name}"})
        for model, figure in drawn
        for one in figure.series
    )
    origin = findings[0].provenance
    yield Finding(
        analysis="depth-beside",
        title=f"Fewer layers of {len(drawn)} trained models",
        measured="Layers above the number given are left out of each trained model, one stack at a time, and "
        "nothing is trained again.",
        figures=(drawn[0][1].model_copy(update={"series": tuple(lines)}),),
        provenance=provenance(
            [model for finding in findings for model in finding.provenance.models],
            origin.data,
            origin.settings,
        ),
    )


def of_runs(
    runs: Sequence[DepthOfRun], sources: Sequence[ModelSource], data: str, settings: dict[str, str]
) -> Finding:
    """BLEU against depth, one line for each kind of layers (Wang et al. 2019, Fig. 3)."""
    side = varying_side(runs)
    found = curves(runs, side)
    return Finding(
        analysis="depth-of-runs",
        title="BLEU against depth over a set of runs",
        measured=(
            "Every run is one model, trained at its depth. Runs whose layers are made of the same parts are "
            "one line; of several runs with one depth, such as seeds, the mean is drawn, with the range "
            "from the least to the greatest."
        ),
        tables=(
            Table(
                title="The runs",
                columns=(
                    Column(name="run"),
                    Column(name="layers made of"),
                    Column(name="encoder layers"),
                    Column(name="decoder layers"),
                    Column(name="BLEU", digits=2),
                ),
                rows=tuple((run.model, run.kind, run.encoder, run.decoder, run.bleu) for run in runs),
            ),
        ),
        figures=(
            Lines(
                name="runs",
                title=f"BLEU against {side} depth",
                x=Axis(label=f"{side} layers"),
                y=_BLEU,
                series=tuple(
                    Series(
                        name=curve.name,
                        x=tuple(map(float, curve.layers)),
                        y=curve.mean,
                        low=curve.low,
                        high=curve.high,
                    )
                    for curve in found
                ),
            ),
        ),
        provenance=provenance(sources, (data,), settings),
    )


def _layers_table(scores: Sequence[DepthScore]) -> Table:
    whole = {side: max(one.layers for one in scores if one.side == side) for side in {s.side for s in scores}}
    best = {one.side: one.bleu for one in scores if one.layers == whole[one.side]}
    return Table(
        title="BLEU with the lowest layers of one stack",
        columns=(
            Column(name="stack"),
            Column(name="layers"),
            Column(name="left out"),
            Column(name="BLEU", digits=2),
            Column(name="change", unit="BLEU", digits=2),
        ),
        rows=tuple(
            (one.side, one.layers, whole[one.side] - one.layers, one.bleu, one.bleu - best[one.side])
            for one in scores
        ),
    )


def _groups_table(groups: Sequence[GroupScore]) -> Table:
    return Table(
        title="BLEU with some groups of the decoder",
        columns=(
            Column(name="groups"),
            Column(name="weight of all", digits=3),
            Column(name="BLEU", digits=2),
        ),
        rows=tuple((_group_name(one), one.weight, one.bleu) for one in groups),
    )


def _figures(scorer: Scorer, scores: Sequence[DepthScore], groups: Sequence[GroupScore]) -> list[Figure]:
    figures: list[Figure] = []
    if scores:
        lines = []
        for side in dict.fromkeys(one.side for one in scores):
            own = [one for one in scores if one.side == side]
            x, y = tuple(float(one.layers) for one in own), tuple(one.bleu for one in own)
            lines.append(Series(name=f"{side} (of {part(scorer.model, side).depth})", x=x, y=y))
        figures.append(
            Lines(
                name=_LAYERS,
                title="BLEU with the lowest layers of one stack",
                x=Axis(label="layers left"),
                y=_BLEU,
                series=tuple(lines),
            )
        )
    if groups:
        figures.append(
            Bars(
                name="groups",
                title="BLEU with some groups of the decoder",
                x=Axis(label="groups"),
                y=_BLEU,
                categories=tuple(map(_group_name, groups)),
                series=(Series(name="BLEU", y=tuple(one.bleu for one in groups)),),
            )
        )
    return figures


def _group_name(score: GroupScore) -> str:
    return str(score.first) if score.first == score.last else f"{score.first}:{score.last}"

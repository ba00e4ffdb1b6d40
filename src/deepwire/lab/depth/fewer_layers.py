"""How much depth is worth: BLEU of a trained model without its top layers, or with some groups alone.

Yang et al. 2022 (GTrans), Table VI and Fig. 7: single groups and ranges of groups of a decoder, the lower
layers of an encoder. Nothing is trained again: the layers left are as they were in the whole model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from deepwire.errors import LogFn, UsageError
from deepwire.lab.report.finding import BarChart, Figure, Finding, LineChart, Series, Table, provenance
from deepwire.lab.subject.model_and_text import check_layer, present
from deepwire.lab.subject.scorer import Scorer
from deepwire.model.stack_spec import Side
from deepwire.model.translation_model import TranslationModel


@dataclass(frozen=True)
class DepthScore:
    """BLEU with the lowest layers of one stack."""

    side: Side
    layers: int
    bleu: float


@dataclass(frozen=True)
class GroupScore:
    """BLEU with groups `first` to `last` of the decoder; `weight` is theirs in the mixture of all."""

    first: int
    last: int
    weight: float
    bleu: float

    @property
    def name(self) -> str:
        """``4`` or ``3:6``."""
        return str(self.first) if self.first == self.last else f"{self.first}:{self.last}"


def with_layers(model: TranslationModel, side: Side, layers: int) -> TranslationModel:
    """The model whose encoder or decoder ends after its lowest `layers` layers; parameters are shared.

    The final norm stays, and a fusion of several layers takes those that are left.

    Raises:
        UsageError: There are not so many layers, or the fusion needs all of them.
    """
    stack = model.stack(side)
    check_layer(stack, side, layers)
    if layers == stack.depth:
        return model
    if stack.repeats:  # the coda would run in their place
        raise UsageError(
            f"layers of the {side} cannot be left out: its middle layers run in rounds (recurrence), and "
            "decoding.rounds says how many"
        )
    try:
        fusion = stack.fusion.lowest(layers)
    except ValueError as error:
        raise UsageError(f"layers of the {side} cannot be left out: {error}") from None
    return model.with_stacks(**{side: stack.with_parts(fusion=fusion)})


def layer_scores(scorer: Scorer, side: Side, tell: LogFn) -> list[DepthScore]:
    """BLEU with 1, 2, ... all layers of a stack, the other stack whole.

    Raises:
        UsageError: The fusion of the stack needs all layers.
    """
    depth = scorer.model.stack(side).depth
    scores = []
    for layers in range(1, depth + 1):
        scores.append(DepthScore(side, layers, scorer.bleu(with_layers(scorer.model, side, layers))))
        tell(f"{side} with {layers} of {depth} layers: BLEU {scores[-1].bleu:.2f}")
    return scores


def group_scores(scorer: Scorer, tell: LogFn) -> list[GroupScore]:
    """BLEU with every single group of the decoder, and with every range that ends with the last one.

    Empty where the decoder does not predict with a mixture of groups.
    """
    weights = group_weights(scorer.model, scorer.languages)
    groups = len(weights)
    ranges = [(group, group) for group in range(1, groups + 1)]
    ranges += [(first, groups) for first in range(1, groups)]
    scores = []
    for first, last in ranges:
        bleu = scorer.bleu(scorer.model, groups=f"{first}:{last}")
        scores.append(GroupScore(first, last, sum(weights[first - 1 : last]), bleu))
        tell(f"decoder groups {first}:{last}: BLEU {bleu:.2f}")
    return scores


def group_weights(model: TranslationModel, languages: Tensor | None = None) -> Sequence[float]:
    """The weights of the decoder's groups in its prediction; empty where there are no groups.

    `languages` `[1]` is the target language, where each may have weights of its own.
    """
    log_weights = model.decoder.fusion.log_weights(languages)
    if log_weights is None:
        return []
    weights: list[float] = log_weights.exp().tolist()
    return weights


def fewer_layers_finding(scorer: Scorer, sides: Sequence[Side], tell: LogFn) -> Finding:
    """BLEU without the top layers of each stack, and with some groups of the decoder alone.

    Raises:
        UsageError: Nothing can be left out of this model.
    """
    scores: dict[Side, list[DepthScore]] = {}
    notes = []
    sides = present(scorer.model, sides)
    for side in sides:
        try:
            scores[side] = layer_scores(scorer, side, tell)
        except UsageError as error:
            notes.append(f"{error.message}.")
    groups = group_scores(scorer, tell) if "decoder" in sides else []
    if not scores and not groups:
        raise UsageError(f"{scorer.name}: {' '.join(notes)}")
    tables: list[Table] = []
    figures: list[Figure] = []
    if scores:
        tables.append(_layers_table(scores))
        figures.append(_layers_chart(scores))
    if groups:
        title = "BLEU with some groups of the decoder"
        rows = [(score.name, score.weight, score.bleu) for score in groups]
        tables.append(Table(title=title, columns=["groups", "weight of all .3", "BLEU .2"], rows=rows))
        bars = [Series(name="BLEU", y=[score.bleu for score in groups])]
        names = [score.name for score in groups]
        figures.append(
            BarChart(name="groups", title=title, x="groups", y="BLEU", categories=names, series=bars)
        )
    return Finding(
        analysis="depth",
        title=f"Fewer layers of a trained model: {scorer.name}",
        measured=(
            "Layers above the number given are left out of the trained model, one stack at a time, and "
            "nothing is trained again; the final norm stays, and a fusion of several layers takes those that "
            "are left. Groups: the decoder predicts with one group alone, or with a range that ends with the "
            "last one, their weights scaled to sum to 1 (Yang et al. 2022, Table VI)."
        ),
        tables=tables,
        figures=figures,
        notes=notes,
        provenance=provenance((scorer.source,), (scorer.pairs.description,), scorer.settings),
    )


def _layers_table(scores: dict[Side, list[DepthScore]]) -> Table:
    return Table(
        title="BLEU with the lowest layers of one stack",
        columns=["stack", "layers", "left out", "BLEU .2", "change [BLEU] .2"],
        rows=[
            (side, score.layers, len(of_side) - score.layers, score.bleu, score.bleu - of_side[-1].bleu)
            for side, of_side in scores.items()
            for score in of_side
        ],
    )


def _layers_chart(scores: dict[Side, list[DepthScore]]) -> LineChart:
    lines = [
        Series(
            name=f"{side} (of {len(of_side)})",
            x=[score.layers for score in of_side],
            y=[score.bleu for score in of_side],
        )
        for side, of_side in scores.items()
    ]
    title = "BLEU with the lowest layers of one stack"
    return LineChart(name="layers", title=title, x="layers left", y="BLEU", series=lines)

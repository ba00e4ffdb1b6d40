"""How much depth is worth: BLEU of a trained model without its top layers, or with some groups alone.

Yang et al. 2022 (GTrans), Table VI and Fig. 7: single groups and ranges of groups of a decoder, the lower
layers of an encoder. Nothing is trained again: the layers left are as they were in the whole model.
"""

from __future__ import annotations

from collections.abc import Sequence

from deepwire.errors import LogFn, UsageError
from deepwire.lab.finding import BarChart, Figure, Finding, LineChart, Series, Table, provenance
from deepwire.lab.scorer import Scorer
from deepwire.lab.subject import present
from deepwire.model.stack_spec import Side
from deepwire.model.translation_model import TranslationModel


def with_layers(model: TranslationModel, side: Side, layers: int) -> TranslationModel:
    """The model whose encoder or decoder ends after its lowest `layers` layers; parameters are shared.

    The final norm stays, and a fusion of several layers takes those that are left.

    Raises:
        UsageError: The fusion needs all of them, or they run in rounds.
    """
    stack = model.stack(side)
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


def layer_scores(scorer: Scorer, side: Side, tell: LogFn) -> list[float]:
    """BLEU with 1, 2, ... all layers of a stack, the other stack whole.

    Raises:
        UsageError: The fusion of the stack needs all layers.
    """
    depth = scorer.model.stack(side).depth
    scores = []
    for layers in range(1, depth + 1):
        scores.append(scorer.bleu(with_layers(scorer.model, side, layers)))
        tell(f"{side} with {layers} of {depth} layers: BLEU {scores[-1]:.2f}")
    return scores


def group_scores(scorer: Scorer, tell: LogFn) -> list[tuple[str, float, float]]:
    """Groups of the decoder (``4`` or ``3:6``), their weight in the mixture of all, and BLEU with them alone.

    Every single group, and every range that ends with the last one; empty where the decoder does not predict
    with a mixture of groups.
    """
    log_weights = scorer.model.decoder.fusion.log_weights(scorer.languages)
    if log_weights is None:
        return []
    weights: list[float] = log_weights.exp().tolist()
    groups = len(weights)
    ranges = [(group, group) for group in range(1, groups + 1)]
    ranges += [(first, groups) for first in range(1, groups)]
    scores = []
    for first, last in ranges:
        bleu = scorer.bleu(scorer.model, groups=f"{first}:{last}")
        name = str(first) if first == last else f"{first}:{last}"
        scores.append((name, sum(weights[first - 1 : last]), bleu))
        tell(f"decoder groups {name}: BLEU {bleu:.2f}")
    return scores


def fewer_layers_finding(scorer: Scorer, sides: Sequence[Side], tell: LogFn) -> Finding:
    """BLEU without the top layers of each stack, and with some groups of the decoder alone.

    Raises:
        UsageError: Nothing can be left out of this model.
    """
    scores: dict[Side, list[float]] = {}
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
        table, chart = _of_layers(scores)
        tables.append(table)
        figures.append(chart)
    if groups:
        title = "BLEU with some groups of the decoder"
        tables.append(Table(title=title, columns=["groups", "weight of all .3", "BLEU .2"], rows=groups))
        bars = [Series(name="BLEU", y=[bleu for _, _, bleu in groups])]
        names = [name for name, _, _ in groups]
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


def _of_layers(scores: dict[Side, list[float]]) -> tuple[Table, LineChart]:
    title = "BLEU with the lowest layers of one stack"
    table = Table(
        title=title,
        columns=["stack", "layers", "left out", "BLEU .2", "change [BLEU] .2"],
        rows=[
            (side, layers, len(of_side) - layers, bleu, bleu - of_side[-1])
            for side, of_side in scores.items()
            for layers, bleu in enumerate(of_side, 1)
        ],
    )
    lines = [
        Series(name=f"{side} (of {len(of_side)})", x=range(1, len(of_side) + 1), y=of_side)
        for side, of_side in scores.items()
    ]
    return table, LineChart(name="layers", title=title, x="layers left", y="BLEU", series=lines)

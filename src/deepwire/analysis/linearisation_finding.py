"""Scores of linear layers as a finding."""

from __future__ import annotations

from collections.abc import Sequence

from deepwire.analysis.figures import Axis, Bars, Series
from deepwire.analysis.finding import Finding, provenance
from deepwire.analysis.linearisation import READINGS, LayerScore, LinearisationSettings, Reading
from deepwire.analysis.linearisation_model import has_cell
from deepwire.analysis.records import Column, Table
from deepwire.analysis.scored import Scorer
from deepwire.analysis.variants import SIDES
from deepwire.errors import UsageError
from deepwire.model.context import Side

_HOW: dict[Reading, str] = {
    "match": "fitted to the layer's output by least squares",
    "translation": "trained by the translation loss, from the least-squares map on",
}


def finding(
    scorer: Scorer, settings: LinearisationSettings, whole: float, scores: Sequence[LayerScore]
) -> Finding:
    """The scores as tables and bars.

    Raises:
        UsageError: There are no scores.
    """
    if not scores:
        raise UsageError("no layer was replaced")
    table = Table(
        title="BLEU with one layer linear",
        columns=(
            Column(name="stack"),
            Column(name="layer"),
            Column(name="reading"),
            Column(name="BLEU", digits=2),
            Column(name="change", unit="%", digits=2),
            Column(name="explained variance", unit="%", digits=1),
            Column(name="training loss, smoothed", unit="nats/token", digits=3),
        ),
        rows=(
            ("whole model", None, None, whole, 0.0, None, None),
            *(
                (one.side, one.layer, one.reading, one.bleu, one.change(whole), 100 * one.explained, one.loss)
                for one in scores
            ),
        ),
    )
    sides = [side for side in SIDES if any(one.side == side for one in scores)]
    return Finding(
        analysis="linearise",
        title=f"One layer at a time replaced by a linear map: {scorer.name}",
        measured=_measured(settings),
        tables=(table,),
        figures=tuple(_bars(side, whole, [one for one in scores if one.side == side]) for side in sides),
        notes=_notes(scorer, settings),
        provenance=provenance(
            (scorer.source,), (scorer.pairs.description,), scorer.settings | settings.shown
        ),
    )


def _bars(side: Side, whole: float, scores: Sequence[LayerScore]) -> Bars:
    layers = sorted({one.layer for one in scores})
    values = {(one.layer, one.reading): one.change(whole) for one in scores}
    readings = [reading for reading in READINGS if any(one.reading == reading for one in scores)]
    return Bars(
        name=side,
        title=f"Change of BLEU with one linear {side} layer",
        caption=f"Of {whole:.2f} BLEU of the whole model; below zero is a loss. "
        + "; ".join(f"{reading}: {_HOW[reading]}" for reading in readings)
        + ".",
        x=Axis(label=f"{side} layer"),
        y=Axis(label="change of BLEU", unit="%"),
        categories=tuple(str(layer) for layer in layers),
        series=tuple(
            Series(name=reading, y=tuple(values.get((layer, reading)) for layer in layers))
            for reading in readings
        ),
    )


def _measured(settings: LinearisationSettings) -> str:
    readings = "; ".join(f"{reading}: {_HOW[reading]}" for reading in settings.readings)
    return (
        "A layer y = f(x) becomes y = W x + b, one layer at a time, and W and b are trained on the training "
        "set with everything else frozen and without dropout (2020 preprint of the depth-wise LSTM paper, "
        f"section 4). The preprint does not name the loss; readings here: {readings}. The linear layer sees "
        "one position only: it has no self-attention and, in the decoder, no cross-attention. The change is "
        "that of BLEU relative to the whole model."
    )


def _notes(scorer: Scorer, settings: LinearisationSettings) -> tuple[str, ...]:
    notes = [f"Each map saw {settings.updates} updates of about {settings.batch_tokens} target tokens."]
    if any(has_cell(scorer.model, side) for side in settings.sides):
        notes.append(
            "The layers of this model pass on a cell beside their output. The map gives both, from both."
            if settings.cell == "map"
            else "The layers of this model pass on a cell beside their output. The map gives the output; the "
            "cell goes past the layer unchanged. The preprint does not say what it did; --cell map is the "
            "other choice."
        )
    return tuple(notes)

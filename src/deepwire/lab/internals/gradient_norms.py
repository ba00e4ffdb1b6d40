"""Gradients by layer during training, as a run recorded them (Yang et al. 2022, Fig. 11)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from deepwire.errors import DataError
from deepwire.lab.report.finding import Axis, Figure, Finding, HeatMap, LineChart, Series, provenance
from deepwire.lab.subject.model_and_text import NotApplicableError, run_of, source_of
from deepwire.training.log import read_records

_NORM = Axis(label="gradient norm", unit="nats/token", log=True)  # of the loss; parameters have no unit
_FEW_LAYERS = 12
_MAX_COLUMNS = 50


def analyse_gradients(run: str) -> Finding:
    """The gradient norm of each layer's parameters over the updates of a run.

    Raises:
        NotApplicableError: There is no such run, or it was not trained with ``training.record.gradients``.
        DataError: The records are damaged.
    """
    place = run_of(run)
    if place is None:
        raise NotApplicableError(
            f"{run}: no such run directory", "gradients are recorded in the folder of a run"
        )
    records = read_records(place.gradients)
    if not records:
        raise NotApplicableError(
            f"{run}: recorded no gradients", "train with training.record.gradients=100, also from here on"
        )
    updates = [_update(record, str(place.gradients)) for record in records]
    figures: list[Figure] = []
    medians: list[Series] = []
    for side in ("encoder", "decoder"):
        layers = [key for key in records[0] if key.startswith(f"{side}.") and not key.endswith(".rest")]
        curves = [
            Series(name=f"layer {key.partition('.')[2]}", x=updates, y=_norms(records, key)) for key in layers
        ]
        if curves:
            figures.append(_curves(side, curves) if len(curves) <= _FEW_LAYERS else _field(side, curves))
            numbers = [float(key.partition(".")[2]) for key in layers]
            medians.append(Series(name=side, x=numbers, y=[_median(curve.y) for curve in curves]))
    by_layer = LineChart(  # no bars: on a logarithmic scale they begin nowhere
        name="gradients-by-layer",
        title="Gradient norm by layer, median over the recorded updates",
        x="layer, from the bottom",
        y=_NORM,
        series=medians,
    )
    newest = place.checkpoints()[-1:]
    return Finding(
        analysis="gradients",
        title=f"Gradients by layer of {run}",
        measured="The Euclidean norm of the gradient of the training loss per target token with respect to "
        "the parameters that belong to one layer alone, before the whole gradient is clipped. Recorded by "
        f"training itself at {len(records)} of its updates.",
        figures=[*figures, by_layer],
        notes=(
            "What several layers share (such as the gates of a depth-wise LSTM), embeddings and the weights "
            "of aggregations and fusions are in no layer; the records have them as rest.",
        ),
        provenance=provenance(source_of(run, each.path, {"update": each.update}) for each in newest),
    )


def _curves(side: str, curves: Sequence[Series]) -> LineChart:
    title = f"{side.capitalize()}: gradient norm of each layer"
    return LineChart(name=f"{side}-gradients", title=title, x="update", y=_NORM, series=curves, ordered=True)


def _field(side: str, curves: Sequence[Series]) -> HeatMap:
    """Layers over updates in shades, where there are too many layers for lines."""
    updates = curves[0].x
    size = math.ceil(len(updates) / _MAX_COLUMNS)
    begins = range(0, len(updates), size)
    return HeatMap(
        name=f"{side}-gradients",
        title=f"{side.capitalize()}: gradient norm of each layer",
        caption=f"Each column is the median of {size} records." if size > 1 else "",
        row_axis="layer",
        column_axis="update" if size == 1 else "updates from",
        value=_NORM,
        rows=[curve.name.removeprefix("layer ") for curve in curves],
        columns=[f"{updates[begin]:.0f}" for begin in begins],
        values=[[_median(curve.y[begin : begin + size]) for begin in begins] for curve in curves],
    )


def _update(record: Mapping[str, object], path: str) -> float:
    update = record.get("update")
    if not isinstance(update, int):
        raise DataError(f"{path}: a record has no update")
    return float(update)


def _norms(records: Sequence[Mapping[str, object]], key: str) -> list[float | None]:
    values = [record.get(key) for record in records]
    return [float(value) if isinstance(value, int | float) else None for value in values]


def _median(values: Sequence[float | None]) -> float | None:
    finite = [value for value in values if value is not None]
    return median(finite) if finite else None

"""Gradients by layer during training, as a run recorded them (Yang et al. 2022, Fig. 11)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from deepwire.checkpoint.model_files import fingerprint
from deepwire.errors import DataError
from deepwire.lab.report.finding import (
    Axis,
    Figure,
    Finding,
    HeatMap,
    LineChart,
    ModelSource,
    Series,
    provenance,
)
from deepwire.lab.subject.model_and_text import NotApplicableError, run_of
from deepwire.training.log import read_records

_UNIT = "nats/token"  # of the loss; parameters have no unit
_FEW_LAYERS = 12
_MOST_COLUMNS = 50


def analyse_gradients(run: str) -> Finding:
    """The gradient norm of each layer's parameters over the updates of a run.

    Args:
        run: A run directory that was trained with ``training.record.gradients``.

    Raises:
        NotApplicableError: There is no such run, or it recorded no gradients.
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
    updates = tuple(float(_update(record, str(place.gradients))) for record in records)
    figures: list[Figure] = []
    medians: dict[str, dict[str, float | None]] = {}
    for side in ("encoder", "decoder"):
        layers = [key for key in records[0] if key.startswith(f"{side}.") and not key.endswith(".rest")]
        series = [
            Series(name=f"layer {key.partition('.')[2]}", x=updates, y=tuple(_norms(records, key)))
            for key in layers
        ]
        if series:
            figures.append(_curves(side, series) if len(series) <= _FEW_LAYERS else _field(side, series))
            medians[side] = {curve.name: _median(curve.y) for curve in series}
    figures.append(_by_layer(medians))
    newest = place.checkpoints()
    return Finding(
        analysis="gradients",
        title=f"Gradients by layer of {run}",
        measured="The Euclidean norm of the gradient of the training loss per target token with respect to "
        "the parameters that belong to one layer alone, before the whole gradient is clipped. Recorded by "
        f"training itself at {len(records)} of its updates.",
        figures=tuple(figures),
        notes=(
            "What several layers share (such as the gates of a depth-wise LSTM), embeddings and the weights "
            "of aggregations and fusions are in no layer; the records have them as rest.",
        ),
        provenance=provenance(
            [
                ModelSource(
                    name=run,
                    folder=str(checkpoint.path),
                    digest=fingerprint(checkpoint.path),
                    update=checkpoint.update,
                )
                for checkpoint in newest[-1:]
            ]
        ),
    )


def _curves(side: str, series: Sequence[Series]) -> LineChart:
    return LineChart(
        name=f"{side}-gradients",
        title=f"{side.capitalize()}: gradient norm of each layer",
        x=Axis(label="update"),
        y=Axis(label="gradient norm", unit=_UNIT, log=True),
        series=tuple(series),
        ordered=True,
    )


def _field(side: str, series: Sequence[Series]) -> HeatMap:
    """Layers over updates in shades, where there are too many layers for lines."""
    updates = series[0].x
    size = math.ceil(len(updates) / _MOST_COLUMNS)
    begins = range(0, len(updates), size)
    return HeatMap(
        name=f"{side}-gradients",
        title=f"{side.capitalize()}: gradient norm of each layer",
        caption=f"Each column is the median of {size} records." if size > 1 else "",
        row_axis=Axis(label="layer"),
        column_axis=Axis(label="update" if size == 1 else "updates from"),
        value=Axis(label="gradient norm", unit=_UNIT, log=True),
        rows=tuple(curve.name.removeprefix("layer ") for curve in series),
        columns=tuple(f"{updates[begin]:.0f}" for begin in begins),
        values=tuple(tuple(_median(curve.y[begin : begin + size]) for begin in begins) for curve in series),
    )


def _by_layer(medians: Mapping[str, Mapping[str, float | None]]) -> LineChart:
    return LineChart(  # no bars: on a logarithmic scale they begin nowhere
        name="gradients-by-layer",
        title="Gradient norm by layer, median over the recorded updates",
        x=Axis(label="layer, from the bottom"),
        y=Axis(label="gradient norm", unit=_UNIT, log=True),
        series=tuple(
            Series(
                name=side,
                x=tuple(float(name.removeprefix("layer ")) for name in norms),
                y=tuple(norms.values()),
            )
            for side, norms in medians.items()
        ),
    )


def _update(record: Mapping[str, object], path: str) -> int:
    update = record.get("update")
    if not isinstance(update, int):
        raise DataError(f"{path}: a record has no update")
    return update


def _norms(records: Sequence[Mapping[str, object]], key: str) -> list[float | None]:
    values = [record.get(key) for record in records]
    return [float(value) if isinstance(value, int | float) else None for value in values]


def _median(values: Sequence[float | None]) -> float | None:
    finite = [value for value in values if value is not None]
    return median(finite) if finite else None

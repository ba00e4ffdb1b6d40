"""Connection weights: how much a model takes from each depth, now and over its training.

Wang et al. 2019, Fig. 5 (DLCL, and its rule for what is left blank); Yang et al. 2022, Fig. 8 and 9 (GTrans).
Every socket shows the weights that it has (`depth_weights`); this module knows none of them by name.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from deepwire.analysis.report.finding import Finding, provenance
from deepwire.analysis.report.tables_and_figures import Axis, BarChart, Figure, HeatMap, LineChart, Series
from deepwire.analysis.subject.model_and_text import AnalysedModel, NotApplicableError, open_model
from deepwire.checkpoint.store import load_model, read_weights
from deepwire.data.languages import Languages
from deepwire.decoding.model_loading import languages_of
from deepwire.errors import UsageError
from deepwire.model.introspection import TARGET_LANGUAGE, DepthWeights
from deepwire.model.translation_model import TranslationModel
from deepwire.training.logging.metrics_log import read_records

# Wang et al. 2019: weights below either are masked out "for a clearer contrast".
SMALLEST = 0.1
SMALLEST_SHARE = 0.05

Matrix = list[list[float]]


@dataclass(frozen=True)
class _Shown:
    """Weights of one stack as plain numbers; where a pair has several, their mean."""

    side: str
    weights: DepthWeights
    values: Matrix

    @property
    def name(self) -> str:
        return f"{self.side}-{self.weights.key}"

    @property
    def title(self) -> str:
        return f"{self.side.capitalize()}: {self.weights.title[0].lower()}{self.weights.title[1:]}"


def analyse_weights(model: str, layer: int | None = None, *, blank: bool = True) -> Finding:
    """How a model weighs what comes from different depths.

    Args:
        model: A MODEL name. For a run directory, the weights over training are shown too: those recorded
            during training (``training.record.depth_weights``), or else those of the checkpoints it kept.
        layer: Whose output is followed through the layers that read it, where weights are a matrix over
            layers; 0 is the embedding. Default: a layer in the middle.
        blank: Whether small weights of DLCL are left blank in its heat map, as in the paper's Fig. 5.

    Raises:
        NotApplicableError: The model has no such weights.
        UsageError: There is no such layer.
        ModelError: There is no such model, or it is damaged.
    """
    subject = open_model(model)
    languages = languages_of(subject.loaded)
    shown = [
        _show(side, _with_names(weights, languages)) for side, weights in _all_weights(subject.loaded.model)
    ]
    if not shown:
        raise NotApplicableError(
            f"{model}: nothing in it weighs one depth against another",
            "DLCL, GTrans, transparent attention, MLRF (linear, feed_forward), ReZero and Runge-Kutta blocks "
            f"of learned combination have such weights; for gates see "
            f"{shlex.join(['deepwire', 'analyze', 'gates', model])}",
        )
    _check_layer(shown, layer)
    figures: list[Figure] = []
    for matrix in shown:
        figures += _figures(matrix, layer, blank=blank)
    over_training, origin = _over_training(subject, shown)
    notes = []
    if any(matrix.weights.values.shape[2:].numel() > 1 for matrix in shown):
        notes.append("A pair of depths has several weights (one a feature, or some); their mean is shown.")
    return Finding(
        analysis="weights",
        title=f"Connection weights of {model}",
        measured="The numbers by which the model weighs what comes from different depths, read from its "
        f"parameters: no text is involved.{f' {origin}' if origin else ''}",
        figures=(*figures, *over_training),
        notes=tuple(notes),
        provenance=provenance([subject.source]),
    )


_THINNED = (
    f"A field is blank where the absolute weight is below {SMALLEST} or below {SMALLEST_SHARE:.0%} of the "
    "largest of its row, as in Wang et al. 2019, Fig. 5; the table has all weights. The last row is what "
    "leaves the stack."
)


def small(row: Sequence[float]) -> list[bool]:
    """Which weights of a row Fig. 5 of Wang et al. 2019 leaves blank; NaN counts as nothing there."""
    largest = max((abs(value) for value in row if not math.isnan(value)), default=0.0)
    floor = max(SMALLEST, SMALLEST_SHARE * largest)
    return [not math.isnan(value) and abs(value) < floor for value in row]


def _all_weights(model: TranslationModel) -> Iterator[tuple[str, DepthWeights]]:
    for side, stack in model.stacks().items():
        for weights in stack.depth_weights():
            yield side, weights


def _with_names(weights: DepthWeights, languages: Languages | None) -> DepthWeights:
    """Rows that are languages get their names."""
    if weights.row_axis != TARGET_LANGUAGE or languages is None:
        return weights
    return replace(weights, rows=languages.names)


def _show(side: str, weights: DepthWeights) -> _Shown:
    values = weights.values.detach().float().cpu()
    values = values.mean(-1) if values.dim() > 2 else values
    return _Shown(side, weights, values.tolist())


def _figures(matrix: _Shown, layer: int | None, *, blank: bool) -> Iterator[Figure]:
    weights = matrix.weights
    if len(weights.rows) == 1:
        yield BarChart(
            name=matrix.name,
            title=matrix.title,
            x=Axis(label=weights.column_axis),
            y=Axis(label=weights.value),
            categories=weights.columns,
            series=(Series(name=weights.value, y=tuple(matrix.values[0])),),
        )
        return
    yield HeatMap(
        name=matrix.name,
        title=matrix.title,
        caption=_THINNED if weights.thinned and blank else "",
        row_axis=Axis(label=weights.row_axis),
        column_axis=Axis(label=weights.column_axis),
        value=Axis(label=weights.value),
        rows=weights.rows,
        columns=weights.columns,
        values=tuple(map(tuple, matrix.values)),
        hidden=tuple(tuple(small(row)) for row in matrix.values) if weights.thinned and blank else (),
    )
    if weights.thinned and (layer is None or layer < len(weights.columns)):
        yield _successors(matrix, layer)


def _check_layer(shown: Sequence[_Shown], layer: int | None) -> None:
    """See that one of the stacks has the layer; the other may be shallower."""
    followed = {matrix.side: len(matrix.weights.columns) - 1 for matrix in shown if matrix.weights.thinned}
    if layer is None or any(0 <= layer <= last for last in followed.values()):
        return
    if not followed:
        raise UsageError(
            "no layer's output can be followed: the weights are no matrix over layers", "leave --layer out"
        )
    known = " and ".join(f"the {side} has layers 1 to {last}" for side, last in followed.items())
    raise UsageError(f"{known}, and no layer {layer}", "0 is the embedding")


def _successors(matrix: _Shown, layer: int | None) -> Figure:
    """One column of the matrix: how much of one layer's output all later ones read (Fig. 5c)."""
    weights = matrix.weights
    chosen = (len(weights.columns) - 1) // 2 if layer is None else layer
    reached = [(row, values[chosen]) for row, values in zip(weights.rows, matrix.values, strict=True)]
    reached = [(row, value) for row, value in reached if not math.isnan(value)]
    return BarChart(
        name=f"{matrix.name}-successors",
        title=f"{matrix.side.capitalize()}: weights of {weights.columns[chosen]} in all that read it",
        caption="One column of the matrix: in ordinary residual connections it would be constant.",
        x=Axis(label=weights.row_axis),
        y=Axis(label=weights.value),
        categories=tuple(row for row, _ in reached),
        series=(Series(name=weights.value, y=tuple(value for _, value in reached)),),
    )


def _over_training(subject: AnalysedModel, shown: Sequence[_Shown]) -> tuple[list[Figure], str]:
    """Curves of the weights, and a sentence on where they come from; nothing without a run."""
    if subject.run is None:
        return [], ""
    records = read_records(subject.run.depth_weights)
    origin = f"Curves over training show the records in {subject.run.depth_weights.name}."
    if not records:
        records = list(_of_checkpoints(subject))
        origin = f"Curves over training show the {len(records)} checkpoints that the run kept."
    if len(records) < 2:
        return [], ""
    figures = [_curves(matrix, records) for matrix in shown]
    return [figure for figure in figures if figure is not None], origin


def _of_checkpoints(subject: AnalysedModel) -> Iterator[Mapping[str, object]]:
    if subject.run is None:
        return
    checkpoints = subject.run.checkpoints()
    model = load_model(checkpoints[0].path).model if len(checkpoints) > 1 else None
    for checkpoint in checkpoints if model is not None else ():
        if model is not None:
            read_weights(checkpoint.path, model)
            values = {
                f"{side}.{weights.key}": _show(side, weights).values for side, weights in _all_weights(model)
            }
            yield {"update": checkpoint.update, **values}


def _curves(matrix: _Shown, records: Sequence[Mapping[str, object]]) -> Figure | None:
    """The last row of the weights over updates, one line for each column."""
    weights = matrix.weights
    points: list[tuple[int, list[float | None]]] = []
    for record in records:
        match record.get("update"), record.get(f"{matrix.side}.{weights.key}"):
            case int(update), [*_, list(row)] if len(row) == len(weights.columns):
                points.append((update, [value if isinstance(value, float) else None for value in row]))
    if len(points) < 2:
        return None
    single = len(weights.rows) == 1
    return LineChart(
        name=f"{matrix.name}-over-training",
        title=f"{matrix.title}, over training",
        caption="" if single else f"The last row of the matrix: {weights.row_axis} {weights.rows[-1]}.",
        x=Axis(label="update"),
        y=Axis(label=weights.value),
        series=tuple(
            Series(
                name=column,
                x=tuple(float(update) for update, _ in points),
                y=tuple(row[number] for _, row in points),
            )
            for number, column in enumerate(weights.columns)
        ),
        legend=weights.column_axis,
        ordered=True,
    )

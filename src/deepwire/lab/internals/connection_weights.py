"""Connection weights: how much a model takes from each depth, now and over its training.

Wang et al. 2019, Fig. 5 (DLCL, and its rule for what is left blank); Yang et al. 2022, Fig. 8 and 9 (GTrans).
Parts of a model return their weights by `depth_weights`; this module knows none of the parts by name.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from deepwire.checkpoint.store import load_model, read_weights
from deepwire.data.languages import Direction, Languages
from deepwire.decoding.model_loading import languages_of
from deepwire.errors import DataError, UsageError
from deepwire.lab.internals.text_weights import depends_on_text, text_weights
from deepwire.lab.report.finding import BarChart, Figure, Finding, HeatMap, LineChart, Series, provenance
from deepwire.lab.subject.document_text import ReadText, text_for
from deepwire.lab.subject.model_and_text import AnalysedModel, NotApplicableError, open_model, repeating
from deepwire.model.introspection import OF_SUBLAYERS, TARGET_LANGUAGE, DepthWeights
from deepwire.model.translation_model import TranslationModel
from deepwire.training.log import read_records

# Wang et al. 2019: weights below either are masked out "for a clearer contrast".
SMALLEST = 0.1
SMALLEST_SHARE = 0.05
_BLANK_CAPTION = (
    f"A field is blank where the absolute weight is below {SMALLEST} or below {SMALLEST_SHARE:.0%} of the "
    "largest of its row, as in Wang et al. 2019, Fig. 5; the table has all weights. The last row is what "
    "leaves the stack."
)
_MEASURED_ON_TEXT = (
    "; and what the text decides, as the mean over the words of a text that the model reads, the decoder "
    "with the reference as its past."
)


@dataclass(frozen=True)
class _Matrix:
    """Weights of one stack as plain numbers; the mean where a pair of depths has several."""

    side: str
    weights: DepthWeights
    values: list[list[float]]

    @property
    def name(self) -> str:
        return f"{self.side}-{self.weights.key}"

    @property
    def title(self) -> str:
        return f"{self.side.capitalize()}: {self.weights.title[0].lower()}{self.weights.title[1:]}"


def analyse_weights(
    model: str,
    layer: int | None = None,
    source: Path | None = None,
    reference: Path | None = None,
    sentences: int | None = 500,
    device: str = "cpu",
    direction: Direction | None = None,
    *,
    blank: bool = True,
) -> Finding:
    """The weights that a model gives to its depths; those that depend on a text are averaged over it.

    Args:
        model: A MODEL name. For a run directory, weights over training are shown too: those recorded
            (``training.record.depth_weights``), or else those of its checkpoints.
        layer: The layer whose output is followed through the layers that read it, if weights are a matrix
            over layers; 0 is the embedding. Default: a layer in the middle.
        source, reference, sentences, direction: See `text_for`.
        device: Device of the model.
        blank: Whether to leave small weights of DLCL blank in its heat map, as in the paper's Fig. 5.

    Raises:
        NotApplicableError: The model has no such weights, or they depend on a text and there is none.
        UsageError: There is no such layer, or the text does not fit the model.
        DataError: A text cannot be read.
        ModelError: There is no such model, or it is damaged.
    """
    subject = open_model(model, device)
    network, languages = subject.loaded.model, languages_of(subject.loaded)
    text, missing = _text_to_read(subject, source, reference, sentences, direction)
    weights = list(_all_weights(network))
    if text is not None:
        weights += text_weights(network, text.batches())
    if not weights:
        raise NotApplicableError(
            f"{model}: nothing in it weighs one depth against another"
            + (f" without a text ({missing})" if missing else ""),
            "DLCL, GTrans, MUDD, lanes, attention residuals, transparent attention, MLRF (linear, "
            "feed_forward), ReZero and Runge-Kutta blocks of learned combination have such weights; for "
            f"gates see {shlex.join(['deepwire', 'analyze', 'gates', model])}",
        )
    matrices = [_matrix(side, _with_language_names(each, languages)) for side, each in weights]
    _check_layer(matrices, layer)
    over_training, origin = _over_training(subject, matrices)
    return Finding(
        analysis="weights",
        title=f"Connection weights of {model}",
        measured="The numbers by which the model weighs what comes from different depths, read from its "
        f"parameters{_MEASURED_ON_TEXT if text else ': no text is involved.'} {origin}".rstrip(),
        figures=[
            *(figure for matrix in matrices for figure in _figures(matrix, layer, blank=blank)),
            *over_training,
        ],
        notes=_notes(matrices, network, missing),
        provenance=provenance([subject.source], [text.description] if text else ()),
    )


def _notes(matrices: Sequence[_Matrix], model: TranslationModel, missing: str) -> Iterator[str]:
    if any(matrix.weights.values.shape[2:].numel() > 1 for matrix in matrices):
        yield "A pair of depths has several weights (one a feature, or some); their mean is shown."
    for side, stack in model.stacks().items():
        axes = {matrix.weights.column_axis for matrix in matrices if matrix.side == side}
        if stack.aggregation.acts and OF_SUBLAYERS in axes:
            yield f"Weights of sub-layers of the {side} leave out what its aggregation adds."
    if missing:
        yield f"What depends on the text is left out: {missing}."


def _text_to_read(
    subject: AnalysedModel,
    source: Path | None,
    reference: Path | None,
    sentences: int | None,
    direction: Direction | None,
) -> tuple[ReadText | None, str]:
    """The text to read if weights depend on it, or the reason why they are left out."""
    given = source is not None or reference is not None
    if not depends_on_text(subject.loaded.model):
        if given:
            raise UsageError(
                f"{subject.name}: its weights over depth are the same for every text",
                "leave --source and --reference out",
            )
        return None, ""
    if reason := repeating(subject.loaded.model):
        return None, reason
    try:
        return text_for(subject, source, reference, sentences, direction), ""
    except (UsageError, DataError) as error:
        if given or direction is not None:
            raise
        return None, str(error)


def blank_cells(row: Sequence[float]) -> list[bool]:
    """Whether Fig. 5 of Wang et al. 2019 leaves each weight of a row blank; NaN stands for no weight."""
    largest = max((abs(value) for value in row if not math.isnan(value)), default=0.0)
    floor = max(SMALLEST, SMALLEST_SHARE * largest)
    return [not math.isnan(value) and abs(value) < floor for value in row]


def _all_weights(model: TranslationModel) -> Iterator[tuple[str, DepthWeights]]:
    for side, stack in model.stacks().items():
        for weights in stack.depth_weights():
            yield side, weights


def _with_language_names(weights: DepthWeights, languages: Languages | None) -> DepthWeights:
    """Names rows that are target languages."""
    if weights.row_axis != TARGET_LANGUAGE or languages is None:
        return weights
    return replace(weights, rows=languages.names)


def _matrix(side: str, weights: DepthWeights) -> _Matrix:
    values = weights.values.detach().float().cpu()
    values = values.mean(-1) if values.dim() > 2 else values
    return _Matrix(side, weights, values.tolist())


def _figures(matrix: _Matrix, layer: int | None, *, blank: bool) -> Iterator[Figure]:
    weights = matrix.weights
    if len(weights.rows) == 1:
        yield BarChart(
            name=matrix.name,
            title=matrix.title,
            x=weights.column_axis,
            y=weights.value,
            categories=weights.columns,
            series=[Series(name=weights.value, y=matrix.values[0])],
        )
        return
    thinned = weights.thinned and blank
    yield HeatMap(
        name=matrix.name,
        title=matrix.title,
        caption=_BLANK_CAPTION if thinned else "",
        row_axis=weights.row_axis,
        column_axis=weights.column_axis,
        value=weights.value,
        rows=weights.rows,
        columns=weights.columns,
        values=matrix.values,
        hidden=map(blank_cells, matrix.values) if thinned else (),
    )
    if weights.followed and (layer is None or layer < len(weights.columns)):
        yield _successors(matrix, layer)


def _check_layer(matrices: Sequence[_Matrix], layer: int | None) -> None:
    followed = {
        matrix.side: len(matrix.weights.columns) - 1 for matrix in matrices if matrix.weights.followed
    }
    if layer is None or any(0 <= layer <= last for last in followed.values()):
        return
    if not followed:
        raise UsageError(
            "no layer's output can be followed: the weights are no matrix over layers", "leave --layer out"
        )
    of_sublayers = {matrix.side for matrix in matrices if matrix.weights.column_axis == OF_SUBLAYERS}
    known = " and ".join(
        f"the {side} has {'sub-layers' if side in of_sublayers else 'layers'} 1 to {last}"
        for side, last in followed.items()
    )
    raise UsageError(f"{known}, and no layer {layer}", "0 is the embedding")


def _successors(matrix: _Matrix, layer: int | None) -> Figure:
    """One column of the matrix: the weights of one layer's output in all later layers (Fig. 5c)."""
    weights = matrix.weights
    chosen = (len(weights.columns) - 1) // 2 if layer is None else layer
    column = dict(zip(weights.rows, (row[chosen] for row in matrix.values), strict=True))
    reached = {row: value for row, value in column.items() if not math.isnan(value)}
    return BarChart(
        name=f"{matrix.name}-successors",
        title=f"{matrix.side.capitalize()}: weights of {weights.columns[chosen]} in all that read it",
        caption="One column of the matrix: in ordinary residual connections it would be constant.",
        x=weights.row_axis,
        y=weights.value,
        categories=list(reached),
        series=[Series(name=weights.value, y=list(reached.values()))],
    )


def _over_training(subject: AnalysedModel, matrices: Sequence[_Matrix]) -> tuple[list[Figure], str]:
    """Curves of the weights over training, and a sentence on their origin; empty without a run."""
    if subject.run is None:
        return [], ""
    records = read_records(subject.run.depth_weights)
    origin = f"Curves over training show the records in {subject.run.depth_weights.name}."
    if not records:
        records = list(_checkpoint_records(subject))
        origin = f"Curves over training show the {len(records)} checkpoints that the run kept."
    if len(records) < 2:
        return [], ""
    figures = [_curves(matrix, records) for matrix in matrices]
    return [figure for figure in figures if figure is not None], origin


def _checkpoint_records(subject: AnalysedModel) -> Iterator[Mapping[str, object]]:
    checkpoints = [] if subject.run is None else subject.run.checkpoints()
    if len(checkpoints) < 2:
        return
    model = load_model(checkpoints[0].path).model
    for checkpoint in checkpoints:
        read_weights(checkpoint.path, model)
        values = {
            f"{side}.{weights.key}": _matrix(side, weights).values for side, weights in _all_weights(model)
        }
        yield {"update": checkpoint.update, **values}


def _curves(matrix: _Matrix, records: Sequence[Mapping[str, object]]) -> Figure | None:
    """The last row of the weights over updates, one line for each column."""
    weights = matrix.weights
    rows: dict[int, list[float | None]] = {}
    for record in records:
        match record.get("update"), record.get(f"{matrix.side}.{weights.key}"):
            case int(update), [*_, list(row)] if len(row) == len(weights.columns):
                rows[update] = [value if isinstance(value, float) else None for value in row]
    if len(rows) < 2:
        return None
    last = f"The last row of the matrix: {weights.row_axis} {weights.rows[-1]}."
    return LineChart(
        name=f"{matrix.name}-over-training",
        title=f"{matrix.title}, over training",
        caption="" if len(weights.rows) == 1 else last,
        x="update",
        y=weights.value,
        series=[
            Series(name=column, x=list(rows), y=[row[number] for row in rows.values()])
            for number, column in enumerate(weights.columns)
        ],
        legend=weights.column_axis,
        ordered=True,
    )

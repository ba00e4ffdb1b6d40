"""Gates over depth while a model reads text: how open they are, and how far back a layer's output reaches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from deepwire.analysis.figures import Axis, Bars, Figure, HeatMap, Lines, Series
from deepwire.analysis.finding import Finding, provenance
from deepwire.analysis.gate_statistics import CLOSED, OPEN, FamilyStatistics, observe
from deepwire.analysis.models import NotApplicableError, batches, open_model, read_pairs
from deepwire.analysis.records import Column, Table
from deepwire.data.languages import Direction
from deepwire.evaluation.from_model import told

_MOST_BARS = 12


def analyse_gates(
    model: str,
    source: Path | None = None,
    reference: Path | None = None,
    sentences: int | None = 500,
    device: str = "cpu",
    direction: Direction | None = None,
) -> Finding:
    """How open the gates of a model are over real text, place by place in depth.

    Args:
        model: A MODEL name.
        source, reference: Text to read; default: the test set of the run.
        sentences: Only so many pairs from the beginning; None: all.
        device: Where the model reads.
        direction: Of the text, for a model of several directions.

    Raises:
        NotApplicableError: The model has no gates over depth.
        ModelError, UsageError, DataError: There is no such model or text.
    """
    subject = open_model(model, device)
    inside = subject.loaded.model
    if not inside.encoder.gate_probes() and not inside.decoder.gate_probes():
        raise NotApplicableError(
            f"{model}: has no gates over depth",
            "depth-wise LSTMs, Runge-Kutta gates, self-dependency units and collaboration have them; "
            "for weights see 'deepwire analyze weights'",
        )
    to = told(model, direction)
    pairs = read_pairs(model, source, reference, sentences, direction)
    found = observe(inside, batches(subject, pairs, to=to))
    figures = [figure for family in found for figure in _figures(family)]
    return Finding(
        analysis="gates",
        title=f"Gates of {model}",
        measured="The model reads the text, the decoder with the reference as its past, and every gate is "
        "looked at for each word and each feature. Mean and standard deviation are over both; a gate counts "
        f"as closed below {CLOSED} and as open above {OPEN}.",
        tables=tuple(table for family in found for table in _tables(family)),
        figures=tuple(figures),
        notes=tuple(sorted({note for family in found for note in _meanings(family)})),
        provenance=provenance([subject.source], [pairs.description]),
    )


def _tables(family: FamilyStatistics) -> Iterator[Table]:
    rows = [
        (place.name, gate, sums.mean, sums.deviation, sums.closed / sums.count, sums.opened / sums.count)
        for place in family.places()
        for gate, sums in family.sums[place].items()
    ]
    yield Table(
        title=f"{family.side.capitalize()}, {family.probe.family}",
        columns=(
            Column(name="layer"),
            Column(name="gate"),
            Column(name="mean", digits=3),
            Column(name="standard deviation", digits=3),
            Column(name="share closed", digits=3),
            Column(name="share open", digits=3),
        ),
        rows=tuple(rows),
    )


def _figures(family: FamilyStatistics) -> Iterator[Figure]:
    places = family.places()
    name = f"{family.side}-{family.probe.family.lower().replace(' ', '-')}"
    title = f"{family.side.capitalize()}, {family.probe.family}: how open gates are"
    caption = "Mean over words and features; the range is one standard deviation."
    y = Axis(label="openness (0 closed, 1 open)")
    gates = list(family.sums[places[0]])
    series = []
    for gate in gates:
        sums = [family.sums[place][gate] for place in places]
        means = [one.mean for one in sums]
        spread = [one.deviation for one in sums]
        low = tuple(mean - width for mean, width in zip(means, spread, strict=True))
        high = tuple(mean + width for mean, width in zip(means, spread, strict=True))
        series.append(Series(name=gate, y=tuple(means), low=low, high=high))
    if len(places) <= _MOST_BARS:
        yield Bars(
            name=name,
            title=title,
            caption=caption,
            x=Axis(label="layer"),
            y=y,
            categories=tuple(place.name for place in places),
            series=tuple(series),
        )
    else:
        x = tuple(float(place.order + 1) for place in places)
        yield Lines(
            name=name,
            title=title,
            caption=caption,
            x=Axis(label="place in depth, from the bottom"),
            y=y,
            series=tuple(one.model_copy(update={"x": x}) for one in series),
        )
    if family.kept:
        yield _reach(family, name)


def _reach(family: FamilyStatistics, name: str) -> HeatMap:
    places = family.places()
    columns = ("embedding", *(place.name for place in places[:-1]))
    return HeatMap(
        name=f"{name}-reach",
        title=f"{family.side.capitalize()}, {family.probe.family}: how far back a cell reaches",
        caption="Share of what the cell held after the layer of the column that is still in it after that "
        f"of the row: the product of the {family.probe.keeps} gates in between, as a mean.",
        row_axis=Axis(label="cell after layer"),
        column_axis=Axis(label="what the cell held after layer"),
        value=Axis(label="share that is left"),
        rows=tuple(place.name for place in places),
        columns=columns,
        values=tuple(
            tuple(
                family.kept[begin - 1, end].mean if (begin - 1, end) in family.kept else None
                for begin in range(len(columns))
            )
            for end in range(len(places))
        ),
    )


def _meanings(family: FamilyStatistics) -> Iterator[str]:
    for gate, meaning in family.probe.meaning.items():
        yield f"{family.probe.family}, {gate} gate 1: {meaning}."

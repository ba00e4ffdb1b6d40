"""Gates over depth while a model reads text: how open they are, and how far back a layer's output reaches."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from deepwire.analysis.figures import Axis, Bars, Figure, HeatMap, Lines, Series
from deepwire.analysis.finding import Finding, provenance
from deepwire.analysis.gate_statistics import CLOSED, OPEN, FamilyStatistics, GateSums, observe
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
            f"for weights see {shlex.join(['deepwire', 'analyze', 'weights', model])}",
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
    shares_of = family.probe.shares_of
    names = ("layer", "gate") if shares_of is None else ("hop", shares_of)
    ends = ("closed", "open") if shares_of is None else (f"below {CLOSED}", f"above {OPEN}")
    yield Table(
        title=f"{family.side.capitalize()}, {family.probe.family}",
        columns=(
            *(Column(name=name) for name in names),
            Column(name="mean", digits=3),
            Column(name="standard deviation", digits=3),
            *(Column(name=f"share {end}", digits=3) for end in ends),
        ),
        rows=tuple(rows),
    )


def _figures(family: FamilyStatistics) -> Iterator[Figure]:
    places = family.places()
    name = f"{family.side}-{family.probe.family.lower().replace(' ', '-')}"
    title = f"{family.side.capitalize()}, {family.probe.family}"
    gates = tuple(family.sums[places[0]])
    if family.probe.shares_of is not None:
        yield Bars(
            name=name,
            title=f"{title}: shares",
            caption="Mean over words; the range is one standard deviation. The means of a hop sum to 1.",
            x=Axis(label=family.probe.shares_of),
            y=Axis(label="share of the attention"),
            categories=gates,
            series=tuple(_series(place.name, list(family.sums[place].values())) for place in places),
        )
        return
    title += ": how open gates are"
    caption = "Mean over words and features; the range is one standard deviation."
    y = Axis(label="openness (0 closed, 1 open)")
    series = [_series(gate, [family.sums[place][gate] for place in places]) for gate in gates]
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


def _series(name: str, sums: Sequence[GateSums]) -> Series:
    """The mean of each, with one standard deviation below and above it."""
    return Series(
        name=name,
        y=tuple(one.mean for one in sums),
        low=tuple(one.mean - one.deviation for one in sums),
        high=tuple(one.mean + one.deviation for one in sums),
    )


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

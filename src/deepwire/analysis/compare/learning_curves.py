"""Learning curves of runs in one picture each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from deepwire.analysis.compare.compared_run import ComparedRun
from deepwire.analysis.report.figures import Axis, Figure, LineChart, Series

_HOUR = 3600.0


def learning_curves(runs: Sequence[ComparedRun], names: Sequence[str]) -> Iterator[Figure]:
    """Training loss, then validation by updates and by time; pictures without a point are left out.

    Args:
        runs: At least one.
        names: What legends call them.
    """
    nats = Axis(label="negative log-likelihood", unit="nats/subword")
    updates = Axis(label="updates")
    yield from _lines("training", "Training loss", updates, nats, _training(runs, names, "nll"))
    yield from _lines("validation", "Validation loss", updates, nats, _validation(runs, names, "nll"))
    yield from _lines(
        "validation-by-time",
        "Validation loss by training time",
        Axis(label="training time", unit="hours"),
        nats,
        _validation(runs, names, "nll", by_time=True),
    )
    yield from _lines(
        "validation-bleu",
        "Validation BLEU",
        updates,
        Axis(label="BLEU", unit="%"),
        _validation(runs, names, "bleu"),
    )


def _lines(name: str, title: str, x: Axis, y: Axis, series: Sequence[Series]) -> Iterator[Figure]:
    drawn = tuple(curve for curve in series if curve.y)
    if drawn:
        yield LineChart(name=name, title=title, x=x, y=y, series=drawn)


def _training(runs: Sequence[ComparedRun], names: Sequence[str], key: str) -> list[Series]:
    return [
        _series(
            name, [(entry["update"], entry[key]) for entry in run.train if key in entry and "update" in entry]
        )
        for run, name in zip(runs, names, strict=True)
    ]


def _validation(
    runs: Sequence[ComparedRun], names: Sequence[str], key: str, *, by_time: bool = False
) -> list[Series]:
    curves = []
    for run, name in zip(runs, names, strict=True):
        points = [(entry["update"], entry[key]) for entry in run.valid if key in entry and "update" in entry]
        if by_time:
            times = {entry["update"]: entry["seconds"] / _HOUR for entry in run.train if "seconds" in entry}
            points = [(times[update], value) for update, value in points if update in times]
        curves.append(_series(name, points))
    return curves


def _series(name: str, points: Sequence[tuple[float, float]]) -> Series:
    ordered = sorted(dict(points).items())
    return Series(name=name, x=tuple(x for x, _ in ordered), y=tuple(y for _, y in ordered))

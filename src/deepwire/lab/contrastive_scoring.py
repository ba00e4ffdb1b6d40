"""Agreement over a distance: does a model prefer a translation to the same one with an error put into it?

Contrastive scoring of Sennrich 2017; accuracy by distance as in Fig. 6 of the MHPLSTM paper (Xu et al. 2021).
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, NonNegativeInt, TypeAdapter, ValidationError

from deepwire.config.counts import counted
from deepwire.data.languages import Direction
from deepwire.data.text.files import display, read_bytes
from deepwire.decoding.model_loading import load
from deepwire.decoding.translator import Translator
from deepwire.errors import DataError
from deepwire.evaluation.metric import check_line_counts
from deepwire.evaluation.texts import read_text, selected_targets
from deepwire.lab.finding import Column, Figure, Finding, LineChart, Series, Table, provenance
from deepwire.lab.subject import model_source


@dataclass(frozen=True)
class Contrast:
    """One decision: does the model prefer the reference to the contrastive translation, with an error?

    Attributes:
        kind: The kind of error; empty if the set does not say.
        distance: Words between the two that must agree, 1 = neighbours; None if the set does not say.
    """

    source: str
    reference: str
    contrastive: str
    kind: str = ""
    distance: int | None = None


_Text = Annotated[str, AfterValidator(lambda text: " ".join(text.split())), Field(min_length=1)]


class _Error(BaseModel):
    contrastive: _Text
    type: str | None = None
    distance: NonNegativeInt | None = None


class _Item(BaseModel):
    source: _Text
    reference: _Text
    errors: list[_Error]


_ITEMS = TypeAdapter(list[_Item])


def read_lingeval(path: Path) -> list[Contrast]:
    """Read LingEval97's JSON, plain or compressed; one contrast for each error of each item.

    A list of objects with ``source``, ``reference`` and ``errors``, each a list of objects with
    ``contrastive`` and perhaps ``type`` and ``distance``; further keys are not looked at.

    Raises:
        DataError: The file is missing, damaged, empty, or has another form.
    """
    name = display(path)
    try:
        items = _ITEMS.validate_json(b"".join(read_bytes(path)))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        raise DataError(
            f"{name}: is not of the form of LingEval97: {place}: {first['msg']}",
            "plain text needs --source and --reference, too",
        ) from None
    contrasts = [
        Contrast(item.source, item.reference, error.contrastive, error.type or "", error.distance)
        for item in items
        for error in item.errors
    ]
    if not contrasts:
        raise DataError(f"{name}: holds no contrast")
    return contrasts


def drawn(contrasts: Sequence[Contrast], count: int) -> list[Contrast]:
    """So many of the contrasts, in their order; the same ones of a set every time."""
    places = random.Random(_SEED).sample(range(len(contrasts)), count)
    return [contrasts[place] for place in sorted(places)]


def read_plain(source: Path, reference: Path, contrastive: Path) -> list[Contrast]:
    """Read line-aligned files.

    Raises:
        DataError: A file is missing or damaged, or the line counts differ.
    """
    texts = [read_text(path) for path in (source, reference, contrastive)]
    check_line_counts([(text.name, text.lines) for text in texts])
    return [Contrast(*row) for row in zip(*(text.lines for text in texts), strict=True)]


LONGEST = 15
"""Distances above this are counted together, as in Fig. 6."""

_SEED = 1
_Z = 1.959963984540054


@dataclass(frozen=True)
class Decisions:
    """For each contrast whether a model scores the reference higher; None where it cannot score it."""

    model: str
    right: tuple[bool | None, ...]


def analyse_agreement(
    models: Sequence[str],
    contrasts: Sequence[Contrast],
    name: str,
    *,
    direction: Direction | None = None,
    device: str = "auto",
    precision: str = "auto",
) -> Finding:
    """Score every contrast of the set `name` with every model, others compared with the first one.

    Accuracy is told overall, by kind of error and by distance.

    Raises:
        DataError: A model can score no contrast.
        ModelError, UsageError: There is no such model, direction or device.
    """
    subjects = [model_source(model) for model in models]
    targets = selected_targets(models, direction)
    by_model, formats = list[Decisions](), dict[str, None]()
    for model, to in zip(models, targets, strict=True):
        # No warning: what cannot be scored is counted in the notes.
        translator = load(model, device, precision, warn=lambda _: None)
        by_model.append(decide(model, translator, contrasts, to=to or None))
        formats[translator.precision] = None
    p_values = [None, *(mcnemar(by_model[0].right, each.right) for each in by_model[1:])]
    rows = [(each.model, *_accuracy(each.right), p) for each, p in zip(by_model, p_values, strict=True)]
    columns = ["model", "contrasts", "right", "accuracy [%] .2", "from [%] .2", "to [%] .2"]
    columns += ["p of the difference to the first (McNemar) .4"]
    tables = [Table(title="Accuracy", columns=columns, rows=rows)]
    kinds, places = dict[str, list[int]](), dict[int, list[int]]()
    for place, contrast in enumerate(contrasts):
        if contrast.kind:
            kinds.setdefault(contrast.kind, []).append(place)
        if contrast.distance is not None:
            places.setdefault(min(contrast.distance, LONGEST + 1), []).append(place)
    if len(kinds) > 1:
        of_kinds = [
            (kind, len(of_kind), *(_accuracy(_chosen(each, of_kind))[2] for each in by_model))
            for kind, of_kind in kinds.items()
        ]
        head = ["error", "contrasts", *(Column(name=each.model, unit="%", digits=2) for each in by_model)]
        tables.append(Table(title="Accuracy by kind of error", columns=head, rows=of_kinds))
    return Finding(
        analysis="agreement",
        title=f"Contrastive decisions of {', '.join(models)}",
        measured="Each model scores a translation and the same translation with one error; a decision is "
        "right if the one without the error has the higher log-probability. A tie is wrong. "
        "Ranges are 95 % intervals (Wilson 1927).",
        tables=tables,
        figures=(_distance_figure(by_model, dict(sorted(places.items()))),) if places else (),
        notes=_notes(by_model, contrasts),
        provenance=provenance(
            subjects,
            [f"{name}, {counted(len(contrasts), 'contrast')}"],
            {"precision": ", ".join(formats)},
        ),
    )


def decide(
    model: str,
    translator: Translator,
    contrasts: Sequence[Contrast],
    *,
    to: str | None = None,
) -> Decisions:
    """Decide with a model; each reference is scored once, however many errors were made of it.

    Raises:
        DataError: It can score none of them.
    """
    pairs = list(
        dict.fromkeys(
            pair
            for contrast in contrasts
            for pair in ((contrast.source, contrast.reference), (contrast.source, contrast.contrastive))
        )
    )
    scores = {
        pair: None if score.flag else score.log_probability
        for pair, score in zip(pairs, translator.score(pairs, to=to, documents=False), strict=True)
    }

    def right(contrast: Contrast) -> bool | None:
        reference = scores[contrast.source, contrast.reference]
        contrastive = scores[contrast.source, contrast.contrastive]
        return None if reference is None or contrastive is None else reference > contrastive

    decisions = tuple(map(right, contrasts))
    if all(decision is None for decision in decisions):
        raise DataError(f"{model}: can score none of the contrasts: their sides are empty or too long")
    return Decisions(model, decisions)


def wilson(right: int, count: int) -> tuple[float, float]:
    """The 95 % interval of a share, 0 to 1 (Wilson 1927)."""
    share, spread = right / count, _Z * _Z / count
    middle = share + spread / 2
    half = _Z * math.sqrt(share * (1 - share) / count + spread / (4 * count))
    return max(0.0, (middle - half) / (1 + spread)), min(1.0, (middle + half) / (1 + spread))


def mcnemar(first: Iterable[bool | None], second: Iterable[bool | None]) -> float:
    """p-value of the difference of two models on the same contrasts: exact, two-sided (McNemar 1947)."""
    pairs = [
        (before, after)
        for before, after in zip(first, second, strict=True)
        if before is not None and after is not None
    ]
    wins = sum(bool(after) and not before for before, after in pairs)
    losses = sum(bool(before) and not after for before, after in pairs)
    count, fewer = wins + losses, min(wins, losses)
    tail = term = 1  # the binomial coefficients of count, each from the one before
    for number in range(fewer):
        term = term * (count - number) // (number + 1)
        tail += term
    # Whole numbers until the division: 2 ** count is beyond what a float holds for large sets.
    return min(1.0, tail * 2 / (1 << count))


def _distance_figure(by_model: Sequence[Decisions], places: Mapping[int, Sequence[int]]) -> Figure:
    series = []
    for decisions in by_model:
        shares = [_accuracy(_chosen(decisions, chosen))[2:] for chosen in places.values()]
        share, low, high = zip(*shares, strict=True)
        series.append(Series(name=decisions.model, x=list(places), y=share, low=low, high=high))
    return LineChart(
        name="by-distance",
        title="Accuracy by distance",
        caption=f"Shaded: 95 % intervals. {LONGEST + 1} stands for all above {LONGEST}.",
        x="distance [words]",
        y="accuracy [%]",
        series=series,
    )


def _accuracy(right: Sequence[bool | None]) -> tuple[int, int, float | None, float | None, float | None]:
    """Decisions, right ones, and accuracy with its interval in percent; None without decisions."""
    decided = [decision for decision in right if decision is not None]
    if not decided:
        return 0, 0, None, None, None
    low, high = wilson(sum(decided), len(decided))
    return len(decided), sum(decided), 100 * sum(decided) / len(decided), 100 * low, 100 * high


def _chosen(decisions: Decisions, places: Sequence[int]) -> list[bool | None]:
    return [decisions.right[place] for place in places]


def _notes(by_model: Sequence[Decisions], contrasts: Sequence[Contrast]) -> Iterator[str]:
    for decisions in by_model:
        left_out = sum(right is None for right in decisions.right)
        if left_out:
            count = counted(left_out, "contrast")
            yield f"{decisions.model}: {count} left out, as a side is empty or too long for it."
    same = sum(contrast.reference == contrast.contrastive for contrast in contrasts)
    if same:
        yield f"{same} contrasts have no error in them: both sides are the same, and every model is wrong."

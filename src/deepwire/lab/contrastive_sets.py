"""Contrastive sets: a source, its translation, and the same translation with one error put into it.

Read are LingEval97's JSON (Sennrich 2017) and plain files, line by line.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deepwire.data.text.files import display, open_bytes
from deepwire.errors import DataError
from deepwire.evaluation.texts import read_text


@dataclass(frozen=True)
class Contrast:
    """One decision: does the model prefer the translation to the one with the error?

    Attributes:
        source: Raw text.
        reference: The translation without the error.
        contrastive: The translation with it.
        kind: The kind of error; empty if the set does not say.
        distance: Words between the two that must agree, 1 = neighbours; None if the set does not say.
    """

    source: str
    reference: str
    contrastive: str
    kind: str = ""
    distance: int | None = None


def read_lingeval(path: Path) -> list[Contrast]:
    """Read LingEval97's JSON, plain or compressed; one contrast for each error of each item.

    A list of objects with ``source``, ``reference`` and ``errors``, each a list of objects with
    ``contrastive`` and perhaps ``type`` and ``distance``; further keys are not looked at.

    Raises:
        DataError: The file is missing, damaged, empty, or has another form.
    """
    name = display(path)
    try:
        with open_bytes(path) as file:
            items = json.loads(file.read())
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{name}: not JSON: {error}", "plain text needs --source and --reference, too"
        ) from None
    except (OSError, EOFError) as error:
        raise DataError(f"{name}: cannot read: {error}") from None
    if not isinstance(items, list):
        raise DataError(f"{name}: not a list of items", "the form is that of LingEval97: lingeval97.json")
    contrasts = [
        contrast
        for number, item in enumerate(items, 1)
        for contrast in _contrasts(item, f"{name}: item {number}")
    ]
    if not contrasts:
        raise DataError(f"{name}: holds no contrast")
    return contrasts


def drawn(contrasts: Sequence[Contrast], count: int, seed: int) -> list[Contrast]:
    """So many of the contrasts, in their order; a seed draws the same ones of a set every time."""
    places = random.Random(seed).sample(range(len(contrasts)), count)
    return [contrasts[place] for place in sorted(places)]


def read_plain(
    source: Path, reference: Path, contrastive: Path, distances: Path | None = None
) -> list[Contrast]:
    """Read line-aligned files; ``distances`` holds a whole number a line.

    Raises:
        DataError: A file is missing or damaged, the line counts differ, or a distance is no number.
    """
    texts = [read_text(path) for path in (source, reference, contrastive)]
    numbers = None if distances is None else read_text(distances)
    for text in [*texts[1:], *([numbers] if numbers else [])]:
        if len(text.lines) != len(texts[0].lines):
            raise DataError(
                f"line counts differ: {texts[0].name} {len(texts[0].lines)}, {text.name} {len(text.lines)}",
                "line n of every file must belong to the same sentence",
            )
    values: Sequence[int | None] = [None] * len(texts[0].lines)
    if numbers is not None:
        values = [
            _distance(line.strip(), f"{numbers.name}:{number}")
            for number, line in enumerate(numbers.lines, 1)
        ]
    rows = zip(*(text.lines for text in texts), values, strict=True)
    return [
        Contrast(source_line, reference_line, contrastive_line, distance=distance)
        for source_line, reference_line, contrastive_line, distance in rows
    ]


def _contrasts(item: object, where: str) -> list[Contrast]:
    if not isinstance(item, dict):
        raise DataError(f"{where}: not an object")
    source, reference = _text(item, "source", where), _text(item, "reference", where)
    errors = item.get("errors")
    if not isinstance(errors, list):
        raise DataError(f"{where}: errors is not a list")
    contrasts = []
    for error in errors:
        if not isinstance(error, dict):
            raise DataError(f"{where}: an error is not an object")
        distance = error.get("distance")
        contrasts.append(
            Contrast(
                source,
                reference,
                _text(error, "contrastive", where),
                str(error.get("type") or ""),
                None if distance is None else _distance(distance, where),
            )
        )
    return contrasts


def _text(record: dict[str, object], key: str, where: str) -> str:
    value = record.get(key)
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{where}: {key} is not a text")
    return " ".join(value.split())


def _distance(value: object, where: str) -> int:
    try:
        if isinstance(value, bool | float) or not isinstance(value, int | str):
            raise ValueError
        number = int(value)
        if number < 0:
            raise ValueError
    except ValueError:
        raise DataError(f"{where}: the distance is not a whole number: {value!r}") from None
    return number

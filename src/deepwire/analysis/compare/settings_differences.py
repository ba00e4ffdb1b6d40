"""Where the settings of runs differ, in as few rows as say it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_TYPE = ".type"

Settings = Mapping[str, str]
"""Of one run the values, as JSON text, by their dotted names."""


@dataclass(frozen=True)
class DifferingPart:
    """A part of runs that is not of one type in all of them, such as a connection: one of its types.

    Attributes:
        name: Of the part: ``model.decoder.connection``.
        type: Its type in some runs.
        settings: What else is set there: ``hidden glu, share gates``; settings without a value are left out.
        runs: Which runs these are, counted from 0.
    """

    name: str
    type: str
    settings: str
    runs: tuple[int, ...]


def differing(settings: Sequence[Settings]) -> dict[str, list[str | None]]:
    """The settings that are not the same in all runs: name, and for each run its value.

    A part that has another type in another run is one row with the types; ``differing_parts`` has the rest.
    """
    parts = _parts(settings)
    rows: dict[str, list[str | None]] = {}
    for name in _different(settings):
        part = _part_of(name, parts)
        if part is None:
            rows[name] = [_plain(values.get(name)) for values in settings]
        else:
            rows[part] = [_plain(values.get(part + _TYPE, values.get(part))) for values in settings]
    return rows


def differing_parts(settings: Sequence[Settings]) -> Iterator[DifferingPart]:
    """The parts that have another type in another run, once for each way in which they are set."""
    for name in _parts(settings):
        ways: dict[tuple[str, str], list[int]] = {}
        for place, values in enumerate(settings):
            if name + _TYPE in values:
                ways.setdefault((str(_plain(values[name + _TYPE])), _described(name, values)), []).append(
                    place
                )
        for (kind, text), places in ways.items():
            if text:
                yield DifferingPart(name, kind, text, tuple(places))


def _different(settings: Sequence[Settings]) -> list[str]:
    names = sorted({name for values in settings for name in values})
    return [name for name in names if len({values.get(name) for values in settings}) > 1]


def _parts(settings: Sequence[Settings]) -> list[str]:
    return [name.removesuffix(_TYPE) for name in _different(settings) if name.endswith(_TYPE)]


def _part_of(name: str, parts: Sequence[str]) -> str | None:
    return next((part for part in parts if name == part or name.startswith(f"{part}.")), None)


def _described(part: str, settings: Settings) -> str:
    return ", ".join(
        f"{name.removeprefix(f'{part}.')} {_plain(value)}"
        for name, value in settings.items()
        if name.startswith(f"{part}.") and name != part + _TYPE and value != "null"
    )


def _plain(text: str | None) -> str | None:
    return None if text is None else text.strip('"')

"""Where the settings of runs differ, in as few rows as say it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_TYPE = ".type"


def differing(settings: Sequence[Mapping[str, str]]) -> dict[str, list[str | None]]:
    """The settings that are not the same in all runs: name, and for each run its value.

    Where a part, such as a connection, has another type in another run, its settings are one row, not one
    each, and those without a value are left out.

    Args:
        settings: Of each run the values, as JSON text, by their dotted names.
    """
    names = sorted({name for one in settings for name in one})
    different = [name for name in names if len({one.get(name) for one in settings}) > 1]
    parts = [name.removesuffix(_TYPE) for name in different if name.endswith(_TYPE)]
    found: dict[str, list[str | None]] = {}
    for name in different:
        part = next((part for part in parts if name.startswith(f"{part}.")), None)
        if part is None:
            found[name] = [_plain(one.get(name)) for one in settings]
        elif part not in found:
            found[part] = [_described(part, one) for one in settings]
    return found


def _described(part: str, settings: Mapping[str, str]) -> str | None:
    """``depth_lstm (hidden glu, share gates)``; None where a run does not have the part."""
    if part + _TYPE not in settings:
        return _plain(settings.get(part))
    own = [
        f"{name.removeprefix(f'{part}.')} {_plain(value)}"
        for name, value in settings.items()
        if name.startswith(f"{part}.") and name != part + _TYPE and value != "null"
    ]
    kind = _plain(settings[part + _TYPE])
    return f"{kind} ({', '.join(own)})" if own else kind


def _plain(text: str | None) -> str | None:
    return None if text is None else text.strip('"')

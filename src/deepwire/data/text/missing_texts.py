"""Where was a text named that is missing?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from deepwire.config.section import Section
from deepwire.data.text.files import MissingTextError

_OF_A_RECIPE = (
    "a recipe looks for its text below the current folder (demo: that of the repository); "
    "change to it, or name your own text with data.train=PREFIX and data.valid=PREFIX"
)


@contextmanager
def naming_texts(settings: Section, origins: Mapping[str, str]) -> Iterator[None]:
    """Say of a text that turns out to be missing where the settings name it.

    Args:
        settings: All of a run, with a section `data`.
        origins: Where each value was written, by dotted key.

    Raises:
        MissingTextError: Whatever is raised inside, with the place in front.
    """
    try:
        yield
    except MissingTextError as error:
        origin = None if error.path is None else _origin(error.path, settings, origins)
        if origin is None:
            raise
        hint = _OF_A_RECIPE if origin.startswith("recipe ") else error.hint
        raise MissingTextError(f"{origin}: {error.message}", hint) from None


def _origin(path: Path, settings: Section, origins: Mapping[str, str]) -> str | None:
    """Where a text, or the prefix of its name, was written."""
    for key, origin in origins.items():
        for text in _paths(_at(settings, key)) if key.startswith("data.") else ():
            if text.parent == path.parent and (text == path or path.name.startswith(f"{text.name}.")):
                return origin
    return None


def _at(value: object, key: str) -> object:
    """The value of a dotted key, or of the beginning of it that is a section."""
    for name in key.split("."):
        if not isinstance(value, Section) or name not in type(value).model_fields:
            break
        value = getattr(value, name)
    return value


def _paths(value: object) -> Iterator[Path]:
    if isinstance(value, Path):
        yield value
    elif isinstance(value, Section):
        for name in type(value).model_fields:
            yield from _paths(getattr(value, name))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _paths(item)

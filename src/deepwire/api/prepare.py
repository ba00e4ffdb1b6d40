"""Settings as the functions of this package take them, and preparation of text."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import TypeAlias

from deepwire.data.data_config import DataConfig
from deepwire.data.prepare import prepared as preparation
from deepwire.data.prepare.build import Progress
from deepwire.data.prepare.prepared import Prepared
from deepwire.data.text.corpus import naming_texts
from deepwire.errors import UsageError
from deepwire.runfile import LoadedRunFile, load_run_file

RunSettings: TypeAlias = str | PathLike[str] | Mapping[str, object] | LoadedRunFile
"""A run file: its path, the name of a recipe, a mapping with what it would hold, or one that was read."""


def load_settings(
    run: RunSettings, arguments: Mapping[str, object], *, trusted: bool = False
) -> LoadedRunFile:
    """Read and check the settings of a run.

    Args:
        run: Where they are.
        arguments: Overrides by section, such as ``{"training": {"max_updates": 100}}``.
        trusted: See `load_run_file`.

    Raises:
        UsageError: Anything is wrong; one line for each mistake.
    """
    if isinstance(run, LoadedRunFile):
        if arguments:
            raise UsageError("settings that were read cannot be changed", "change them when reading")
        return run
    return load_run_file(run if isinstance(run, Mapping) else fspath(run), (), arguments, trusted=trusted)


def configured_size(data: DataConfig) -> int | None:
    """The size that preparation will make the vocabulary, where the run file says it."""
    size = getattr(data.vocabulary, "size", None)
    return size if isinstance(size, int) else None


def prepare(run: RunSettings, /, *, progress: Progress | None = None, **settings: object) -> Prepared:
    """Filter and segment the text of a run, or take what was made of it before.

    Args:
        run: Run file, recipe, or a mapping with what a run file holds.
        progress: Called with what is done, how much of it, and of how much; default: nobody.
        settings: Sections that override those of `run`: ``data={"vocabulary": {"size": 4000}}``.

    Raises:
        UsageError: A setting is wrong.
        DataError: The text cannot be read or used.
        ResourceError: There is no room, or the folder cannot be written.
    """
    loaded = load_settings(run, settings)
    config = loaded.config
    with naming_texts(loaded.config, loaded.origins):
        return preparation.prepare(config.data, seed=config.seed, progress=progress)

"""Loading of settings, and preparation of text."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import TypeAlias

from deepwire.data.data_config import DataConfig
from deepwire.data.prepare import prepared as preparation
from deepwire.data.prepare.build import Progress
from deepwire.data.prepare.prepared import Prepared
from deepwire.data.text.corpus import hinting_at_recipes
from deepwire.errors import UsageError
from deepwire.runfile import LoadedRunFile, load_run_file

RunSettings: TypeAlias = str | PathLike[str] | Mapping[str, object] | LoadedRunFile
"""A run file: its path, the name of a recipe, a mapping of its sections, or a loaded one."""


def load_settings(
    run: RunSettings, arguments: Mapping[str, object], *, trusted: bool = False
) -> LoadedRunFile:
    """Reads and checks the settings of a run.

    Args:
        run: The run file.
        arguments: Overrides by section, such as ``{"training": {"max_updates": 100}}``.
        trusted: See `load_run_file`.

    Raises:
        UsageError: A setting is wrong; one line for each mistake.
    """
    if isinstance(run, LoadedRunFile):
        if arguments:
            raise UsageError("settings that were read cannot be changed", "change them when reading")
        return run
    return load_run_file(run if isinstance(run, Mapping) else fspath(run), (), arguments, trusted=trusted)


def configured_vocabulary_size(data: DataConfig) -> int | None:
    """The size of vocabulary that the run file asks for; None if it does not say."""
    size = getattr(data.vocabulary, "size", None)
    return size if isinstance(size, int) else None


def prepare(run: RunSettings, /, *, progress: Progress | None = None, **settings: object) -> Prepared:
    """Filters and segments the text of a run, or returns the result of an earlier preparation.

    Args:
        run: Run file, recipe, or a mapping of the sections of a run file.
        progress: Called with the name of the stage, the items done, and how many there are.
        settings: Overrides of sections of `run`: ``data={"vocabulary": {"size": 4000}}``.

    Raises:
        UsageError: A setting is wrong.
        DataError: The text cannot be read or used.
        ResourceError: The disk is full, or the folder cannot be written.
    """
    loaded = load_settings(run, settings)
    config = loaded.config
    with hinting_at_recipes(loaded.origins):
        return preparation.prepare(config.data, seed=config.seed, progress=progress)

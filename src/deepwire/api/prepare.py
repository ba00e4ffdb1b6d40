"""Preparation of text from Python."""

from __future__ import annotations

from deepwire.api.settings import RunSettings, load_settings
from deepwire.data.prepare import prepared as preparation
from deepwire.data.prepare.build import Progress
from deepwire.data.prepare.prepared import Prepared


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
    config = load_settings(run, settings).config
    return preparation.prepare(config.data, seed=config.seed, progress=progress)

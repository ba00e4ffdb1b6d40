"""The base of every section of a run file."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict, JsonValue

UnusedSettings = Iterator[tuple[str, str]]
"""Settings that change nothing beside the other settings: the dotted key below a section, and the reason."""

MAY_CHANGE: dict[str, JsonValue] = {"may_change": True}
"""Marks a setting, as its `json_schema_extra`, that may change in the middle of a run: its length, what is
watched and kept, and where it computes. Paths of text may change because the text is compared by digest."""


class Section(BaseModel):
    """A part of a run file: unknown keys are errors, values are checked, instances do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)

    @classmethod
    def members(cls) -> tuple[type[Section], ...]:
        """The classes that may stand where this one is asked for."""
        return (cls,)

    @classmethod
    def other_names(cls) -> tuple[str, ...]:
        """Names besides its ``type`` that choose it."""
        return ()

    def unused_settings(self) -> UnusedSettings:
        """Settings that change nothing here, whatever their value, because of what stands beside them.

        A run file that sets one of them to something else than its default is refused, so that nobody
        believes in a setting that does nothing. The record of a run is not: its model is what it is.
        Sections below this one answer for themselves.
        """
        return iter(())

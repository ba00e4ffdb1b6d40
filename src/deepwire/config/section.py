"""The base of every section of a run file, and questions about its fields.

Answered from the annotations of the pydantic models, so that a section needs to say nothing twice.
"""

from __future__ import annotations

import json
import os
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    JsonValue,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo

UnusedSettings = Iterator[tuple[str, str]]
"""Settings that change nothing beside the other settings: the dotted key below a section, and the reason."""

MAY_CHANGE: dict[str, JsonValue] = {"may_change": True}
"""Marks a setting, as its `json_schema_extra`, that may change in the middle of a run: its length, what is
watched and kept, and where it computes. Paths of text may change because the text is compared by digest."""


class Removed(NamedTuple):
    """A setting of earlier versions.

    Attributes:
        unused: The values that changed nothing: with these it may stand, as in the record of a run.
        instead: What to do where it has another value.
    """

    unused: tuple[object, ...]
    instead: str


class Section(BaseModel):
    """A part of a run file: unknown keys are errors, values are checked, instances do not change."""

    written_as: ClassVar[tuple[object, ...]] = ()
    """Types of plain values that may stand for the mapping in a run file, for its JSON Schema."""

    removed: ClassVar[dict[str, Removed]] = {}
    """Settings that earlier versions had here."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _without_removed(cls, values: object) -> object:
        if not cls.removed or not isinstance(values, Mapping):
            return values
        for key in cls.removed.keys() & values.keys():
            if values[key] not in cls.removed[key].unused:
                raise ValueError(f"{key} was removed: {cls.removed[key].instead}")
        return {key: value for key, value in values.items() if key not in cls.removed}

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


@dataclass(frozen=True)
class TypedSection(BeforeValidator):
    """A validator of a field that knows the ``type`` of a mapping that names none."""

    default_type: str = ""


class ShorthandSection(Section):
    """A section that a plain value may stand for: the one that ``written_as`` describes."""

    plain_sets: ClassVar[tuple[str, ...]]
    """The settings that are the plain value."""
    instead_of_plain: ClassVar[tuple[str, ...]] = ()
    """Other settings of which one takes the place of the plain value, so that both cannot be given."""

    @model_validator(mode="before")
    @classmethod
    def _from_plain(cls, value: object) -> object:
        if isinstance(value, Mapping | cls):
            return value
        plain = os.fspath(value) if isinstance(value, os.PathLike) else value
        try:
            plain = _type_of(cls.written_as[0]).validate_python(plain, strict=True)
        except ValidationError:
            return cls._of_another_kind(value)
        return dict.fromkeys(cls.plain_sets, plain)

    @classmethod
    def _of_another_kind(cls, value: object) -> object:
        """The value to check in place of one that is neither settings nor such a plain value."""
        return value


class NumberSection(ShorthandSection):
    """A section that a plain number may stand for."""

    no_number: ClassVar[str]
    """The message for a value that is neither settings nor such a number; ``{}`` stands for the value."""

    @classmethod
    def _of_another_kind(cls, value: object) -> object:
        raise ValueError(cls.no_number.format(value))


@cache
def _type_of(plain: Any) -> TypeAdapter[object]:
    return TypeAdapter(plain)


def alternatives(annotation: object) -> tuple[object, ...]:
    """The members of a union, through ``Annotated`` and optionals; a plain type is its own only member."""
    if get_origin(annotation) is Annotated:
        return alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(member for part in get_args(annotation) for member in alternatives(part))
    return (annotation,)


def sections(annotation: object) -> tuple[type[Section], ...]:
    """The section classes that may stand here."""
    classes = (a for a in alternatives(annotation) if isinstance(a, type) and issubclass(a, Section))
    return tuple(member for section in classes for member in section.members())


def tags(section: type[Section]) -> tuple[str, ...]:
    """The values of the section's ``type`` key that choose it in a union; empty without such a key."""
    field = section.model_fields.get("type")
    if field is None:
        return ()
    named = (str(v) for a in alternatives(field.annotation) if get_origin(a) is Literal for v in get_args(a))
    return tuple(dict.fromkeys([*named, *section.other_names()]))


def chosen_by_type(annotation: object) -> bool:
    """Whether a mapping here is told apart by its ``type`` key."""
    return any(tags(section) for section in sections(annotation))


def shorthand_at(annotation: object) -> type[ShorthandSection] | None:
    """The section that a plain value stands for here, perhaps in place of a list of one; None: for none."""
    here = sections(annotation) or sections(_items(annotation))
    return next((section for section in here if issubclass(section, ShorthandSection)), None)


def default_type(annotation: object) -> str | None:
    """The ``type`` of a mapping here that names none; None where it must name one."""
    notes = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return next((note.default_type for note in notes if isinstance(note, TypedSection)), None)


def child(annotation: object, key: str | int, tag: object = None) -> object | None:
    """The annotation of a key or of a list index below ``annotation``; None where nothing is known."""
    if isinstance(key, int):
        return _items(annotation) or annotation  # the latter for a list that stands for a section
    having_key = [s for s in sections(annotation) if key in s.model_fields]
    narrowed = [s for s in having_key if tag in tags(s)] or having_key
    if narrowed:
        field = narrowed[0].model_fields[key]
        typed = next((entry for entry in field.metadata if isinstance(entry, TypedSection)), None)
        return field.annotation if typed is None else Annotated[field.annotation, typed]
    for member in alternatives(annotation):
        origin = get_origin(member)
        if isinstance(origin, type) and issubclass(origin, Mapping) and len(get_args(member)) == 2:
            return get_args(member)[1]  # type: ignore[no-any-return]
    return None


def keys_below(section: type[Section], prefix: str = "", depth: int = 8) -> Iterator[tuple[str, FieldInfo]]:
    """Every dotted key that a run file may hold below ``section``, with its field."""
    for name, field in section.model_fields.items() if depth else ():
        path = f"{prefix}.{name}" if prefix else name
        yield path, field
        for inner in sections(field.annotation):
            yield from keys_below(inner, path, depth - 1)


def described_keys(section: type[Section]) -> Iterator[tuple[str, str]]:
    """Every dotted key below ``section``, with its description."""
    return ((key, field.description or "") for key, field in keys_below(section))


def _items(annotation: object) -> object | None:
    for member in alternatives(annotation):
        origin = get_origin(member)
        if isinstance(origin, type) and issubclass(origin, Sequence) and get_args(member):
            return get_args(member)[0]  # type: ignore[no-any-return]
    return None


def written(value: object) -> str:
    """A plain value as it may be typed into a run file or after a key: `null`, `true`, `gelu`, `[1, 2]`."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def flatten(tree: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """The leaves of nested mappings by dotted key; lists are leaves."""
    leaves: dict[str, object] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        leaves.update(flatten(value, f"{name}.") if isinstance(value, Mapping) else {name: value})
    return leaves

"""JSON Schema of a section: what an editor needs to complete and check a run file.

It describes what may be *written*: shorthands such as ``4k`` for a count or a type alone for its section,
and ``extends``. What holds between several settings, and what must be there, is left to reading the file.
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin

from annotated_types import MinLen
from pydantic import BeforeValidator, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_jsonable_python

from deepwire import plugins
from deepwire.config.choice import PLACE, Choice
from deepwire.config.counts import Duration
from deepwire.config.section import Section, sections, tags

Schema: TypeAlias = dict[str, Any]  # JSON

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_LENGTH = r"^[0-9][0-9_]*(\.[0-9]+)?[kKmMgG]?[uet]?$"


def schema_of(section: type[Section], title: str) -> Schema:
    """The JSON Schema of a file that holds ``section``.

    Args:
        section: The class of the whole file. Sections below it become definitions, each once.
        title: What the file is called.
    """
    definitions: dict[str, Schema] = {}
    builder = _Builder(definitions)
    whole = builder.mapping(section)
    properties = {
        "extends": {
            "type": "string",
            "description": "recipe, or file relative to this one, whose settings this file takes over",
        },
        **whole["properties"],
    }
    return {
        "$schema": DIALECT,
        "title": title,
        **whole,
        "properties": properties,
        "$defs": dict(sorted(definitions.items())),
    }


class _Builder:
    def __init__(self, definitions: dict[str, Schema]) -> None:
        self._definitions = definitions
        self._classes: dict[str, type[Section]] = {}

    def mapping(self, section: type[Section]) -> Schema:
        return {
            "type": "object",
            "description": _first_paragraph(section),
            "properties": {name: self._field(field) for name, field in section.model_fields.items()},
            "additionalProperties": False,
        }

    def _field(self, field: FieldInfo) -> Schema:
        schema = self._type(field.annotation, tuple(field.metadata))
        described = {"description": field.description} if field.description else {}
        return {**schema, **described, **_default(field)}

    def _type(self, annotation: object, metadata: tuple[object, ...] = ()) -> Schema:
        if get_origin(annotation) is Annotated:
            inner, *more = get_args(annotation)
            return self._type(inner, (*more, *metadata))
        before = [entry for entry in metadata if isinstance(entry, BeforeValidator)]
        forms = [self._plain(annotation, metadata)]
        for entry in before:
            if entry.json_schema_input_type is not PydanticUndefined:
                forms.append(self._type(entry.json_schema_input_type))
        if before and (named := [tag for choice in sections(annotation) for tag in tags(choice)]):
            forms.append({"enum": named})
        return _any_of(forms)

    def _plain(self, annotation: object, metadata: tuple[object, ...]) -> Schema:
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin in (Union, types.UnionType):
            kept = tuple(entry for entry in metadata if not isinstance(entry, BeforeValidator))
            return _any_of([self._type(member, kept) for member in arguments])
        if isinstance(annotation, type) and issubclass(annotation, Section):
            return self._section(annotation)
        if annotation is Duration:
            return _any_of([{"type": "integer", "minimum": 1}, {"type": "string", "pattern": _LENGTH}])
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self._type(arguments[1])}
        if origin is list or (origin is tuple and arguments[1:] == (...,)):
            least = [{"minItems": entry.min_length} for entry in metadata if isinstance(entry, MinLen)]
            return {"type": "array", "items": self._type(arguments[0]), **(least[0] if least else {})}
        return _leaf(annotation, metadata)

    def _section(self, section: type[Section]) -> Schema:
        """A reference to the section's definition, which is made when it is asked for first."""
        name = section.__name__
        if self._classes.setdefault(name, section) is not section:
            name = f"{section.__module__}.{name}"
        if name not in self._definitions:
            self._definitions[name] = {}
            self._definitions[name] = (
                self._choice(section)
                if issubclass(section, Choice) and "kind" in vars(section)
                else _any_of([self.mapping(section), *map(self._type, section.written_as)])
            )
        return {"$ref": f"#/$defs/{name}"}

    def _choice(self, section: type[Choice]) -> Schema:
        """One of a table, or of another package: its name alone, or a mapping with its ``type``."""
        members = section.members()
        names = [tag for member in members for tag in tags(member)]
        others = {"type": {"type": "string", "pattern": PLACE}}
        return {
            "description": _first_paragraph(section),
            "anyOf": [
                {"enum": [*names, *plugins.names(section.kind)]},
                {"type": "string", "pattern": PLACE},
                *map(self._section, members),
                {"type": "object", "properties": others, "required": ["type"]},
            ],
        }


def _leaf(annotation: object, metadata: tuple[object, ...]) -> Schema:
    kept = [entry for entry in metadata if not isinstance(entry, BeforeValidator)]
    whole: Any = Annotated[annotation, *kept] if kept else annotation
    return TypeAdapter(whole).json_schema()


def _any_of(forms: Sequence[Schema]) -> Schema:
    """One of several forms, each once; unions of unions become one."""
    flat: list[Schema] = []
    for form in forms:
        for member in form["anyOf"] if set(form) == {"anyOf"} else [form]:
            if member not in flat:
                flat.append(member)
    return flat[0] if len(flat) == 1 else {"anyOf": flat}


def _default(field: FieldInfo) -> Schema:
    """The default as it would be written; that of a section is what its keys say."""
    value = field.default
    if value is PydanticUndefined:
        return {}
    if isinstance(value, Choice):
        return {"default": value.type}
    if isinstance(value, Section):
        return {"default": str(named)} if (named := getattr(value, "type", None)) else {}
    if isinstance(value, Mapping) and set(value) == {"type"}:
        return {"default": value["type"]}
    return {"default": str(value) if isinstance(value, Duration | Path) else to_jsonable_python(value)}


def _first_paragraph(section: type[Section]) -> str:
    text = (section.__doc__ or "").strip().split("\n\n")[0]
    return re.sub(r"\s+", " ", text).replace("``", "`")

"""Settings whose ``type`` names a choice: one of deepwire's, or one of another package."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from typing import Annotated, Any, ClassVar, Self, TypeAlias, cast

from pydantic import BeforeValidator, Field, GetCoreSchemaHandler, TypeAdapter, ValidationInfo
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

from deepwire import plugins
from deepwire.config.section import Section, TypedSection, tags
from deepwire.plugins import Kind, Plugin, PluginError

TRUSTED: Mapping[str, object] = {"trusted": True}
"""Validation context of settings that the user wrote: a name in them may import a package."""

PLACE = f"^{plugins.PLACE.pattern}$"
"""Pattern, for JSON schemas, of a choice of another package by its place: `my_package.MyConfig`."""

SectionClass: TypeAlias = type[Section]


def _by_name(value: object) -> object:
    return {"type": value} if isinstance(value, str) else value


by_name = BeforeValidator(_by_name)
"""Validator that takes the name alone for a choice without settings: `positions: learned`."""


def by_name_or(default: str) -> TypedSection:
    """As `by_name`; a mapping without a ``type`` is of the default one."""

    def with_type(value: object) -> object:
        return {"type": default, **value} if isinstance(value, dict) else _by_name(value)

    return TypedSection(with_type, default_type=default)


class Choice(Section, ABC):
    """Base of a choice's settings.

    A field whose type is the class that names the `kind` holds a choice of its `ChoiceTable`. In a run file
    that is a mapping with a ``type``, or the type alone: ``connection: pre_norm``.
    """

    type: str
    # Such as connection or mixer. The class that sets it stands for all choices of the kind.
    kind: ClassVar[Kind]

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Look the type up where the class stands for all choices of its kind."""
        if "kind" in vars(cls):
            return core_schema.with_info_plain_validator_function(cls._look_up)
        return handler(source)

    @classmethod
    def _look_up(cls, value: object, info: ValidationInfo) -> Self:
        if isinstance(value, cls):
            return value
        trusted = bool((info.context or {}).get("trusted"))
        # The table holds classes of its base alone.
        table = _TABLES[cls.kind]
        return cast("Self", table.validated(_by_name(value), trusted=trusted, context=info.context))

    @classmethod
    def members(cls) -> tuple[SectionClass, ...]:
        """All choices of the kind that are known, where the class stands for them; else the class."""
        return _TABLES[cls.kind].members() if "kind" in vars(cls) else (cls,)

    @classmethod
    def other_names(cls) -> tuple[str, ...]:
        """The places by which settings have named it."""
        return tuple(name for name, section in _TABLES[cls.kind].others.items() if section is cls)


@dataclass(frozen=True)
class ChoiceName:
    """Annotates a text: the name of a choice that has no settings, of deepwire in any case or of a plugin.

    Attributes:
        kind: Such as metric.
        own: The names of deepwire that fit here.
        written: Other spellings of these, which editors offer.
    """

    kind: Kind
    own: Sequence[str]
    written: Sequence[str] = ()

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Look the name up."""
        return core_schema.with_info_after_validator_function(self._look_up, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: object) -> dict[str, Any]:
        """The names that are known, and the form of a place."""
        del schema, handler
        names = [*self.own, *self.written, *plugins.names(self.kind)]
        return {"anyOf": [{"enum": names}, {"type": "string", "pattern": PLACE}]}

    def _look_up(self, name: str, info: ValidationInfo) -> str:
        if name.lower() in self.own:
            return name.lower()
        trusted = (info.context or {}).get("trusted")
        if trusted is not None:
            known = plugins.find(self.kind, name, trusted=bool(trusted)) is not None
        else:  # a record may be read where the package is not
            known = name in plugins.names(self.kind) or plugins.PLACE.fullmatch(name) is not None
        if not known:
            names = (*self.own, *plugins.names(self.kind))
            raise PydanticKnownError("literal_error", {"expected": ", ".join(map(repr, names))})
        return name


class ChoiceTable:
    """The choices of one kind.

    Args:
        base: The class that stands for all of them.
        sections: Those of deepwire. Those of other packages are added when settings name them.

    Attributes:
        own: Those of deepwire, by name.
        others: Those of other packages, by the name in the settings.
    """

    def __init__(self, base: type[Choice], sections: Sequence[type[Choice]]) -> None:
        self.base, self.kind = base, base.kind
        self.own = {_tag(section): section for section in sections}
        self.others: dict[str, type[Choice]] = {}
        plugins.reserve(self.kind, list(self.own))
        _TABLES[self.kind] = self

    def members(self) -> tuple[type[Choice], ...]:
        """The choices of deepwire, and those of other packages that settings have named."""
        return (*self.own.values(), *dict.fromkeys(self.others.values()))

    def validated(self, value: object, *, trusted: bool, context: Any) -> Choice:
        """The settings that a mapping holds, of the choice that its type names.

        Raises:
            ValidationError: With the errors of a union told apart by `type`.
        """
        name = value.get("type") if isinstance(value, Mapping) else None
        if not isinstance(value, Mapping) or not isinstance(name, str) or name in self.own:
            return self._own.validate_python(value, context=context)
        section = self._other(name, trusted)
        if section is None:
            names = (*self.own, *plugins.names(self.kind))
            told = {"discriminator": "'type'", "tag": name, "expected_tags": ", ".join(map(repr, names))}
            raise PydanticKnownError("union_tag_invalid", told)
        chosen = _union([next(iter(self.own.values())), section]).validate_python(
            {**value, "type": _tag(section)}, context=context
        )
        # The name as it was written, so that a stored configuration says where the class is.
        return chosen.model_copy(update={"type": name})

    def _other(self, name: str, trusted: bool) -> type[Choice] | None:
        section = plugins.find(self.kind, name, trusted=trusted)
        if section is None:
            return self.others.get(name)
        if section is not self.others.get(name):  # registered anew where a cell of a notebook is run again
            if not (isinstance(section, type) and issubclass(section, self.base)):
                raise PluginError(f"{name} is no {self.kind}: that is a whole {self.base.__name__}")
            if missing := section.__abstractmethods__:
                raise PluginError(f"{name} is no {self.kind} yet: it lacks {', '.join(sorted(missing))}")
            if _tag(section) not in tags(section) or _tag(section) in self.own:
                raise PluginError(f'{name} needs a type of its own, such as type: Literal["mine"] = "mine"')
            self.others[name] = section
        return self.others[name]

    @cached_property
    def _own(self) -> TypeAdapter[Choice]:
        return _union(list(self.own.values()))


_TABLES: dict[Kind, ChoiceTable] = {}


def plugins_of(section: Section) -> list[Plugin]:
    """The choices of other packages among the settings of a section and below it, each once."""
    foreign = (
        plugins.describe(choice.kind, choice.type, type(choice))
        for choice in _choices(section)
        if choice.type not in _TABLES[choice.kind].own
    )
    return list(dict.fromkeys(foreign))


@contextmanager
def remembered(section: Section) -> Iterator[None]:
    """Within the block, choices of other packages among a section's settings are known by their types."""
    added: list[tuple[ChoiceTable, str]] = []
    for choice in _choices(section):
        table = _TABLES[choice.kind]
        if choice.type not in table.own and choice.type not in table.others:
            table.others[choice.type] = type(choice)
            added.append((table, choice.type))
    try:
        yield
    finally:
        for table, name in added:
            del table.others[name]


def _choices(section: Section) -> Iterator[Choice]:
    if isinstance(section, Choice):
        yield section
    for name in type(section).model_fields:
        value = getattr(section, name)
        for item in value if isinstance(value, list | tuple) else (value,):
            if isinstance(item, Section):
                yield from _choices(item)


def _tag(section: type[Choice]) -> str:
    return str(section.model_fields["type"].default)


def _union(sections: Sequence[type[Choice]]) -> TypeAdapter[Choice]:
    union: Any = reduce(or_, sections)
    return TypeAdapter(Annotated[union, Field(discriminator="type")])

"""Finds settings that change nothing: those written in a run file, and those that a run recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from deepwire.config.section import Section
from deepwire.config.validation_messages import describe_value
from deepwire.config.yaml_tree import Node, PlainValue, SourceLocation, node_at

_Path = tuple[str | int, ...]


@dataclass(frozen=True)
class UnusedSetting:
    """A setting that changes nothing: where it was written, and a line that says why."""

    location: SourceLocation
    text: str


def find_unused_settings(section: Section, tree: Node) -> Mapping[str, UnusedSetting]:
    """Settings of ``tree`` without effect, by dotted key; ``section`` was built from it."""
    unused: dict[str, UnusedSetting] = {}
    for path, _, reason in _unused(section, ()):
        node = node_at(tree, path)
        if node is not None:
            name = ".".join(str(part) for part in path)
            value = "" if isinstance(node.value, dict) else f" {describe_value(node)}"
            unused[name] = UnusedSetting(node.location, f"{name}:{value} has no effect: {reason}")
    return unused


def canonical_settings(section: Section) -> dict[str, PlainValue]:
    """The values of a section for JSON, those that change nothing at their defaults.

    So settings that mean the same are the same.
    """
    values = section.model_dump(mode="json")
    for path, owner, _ in _unused(section, ()):
        name = str(path[-1])
        default = type(owner).model_fields[name].get_default(call_default_factory=True)
        plain = owner.model_copy(update={name: default}).model_dump(mode="json", include={name})
        below: Any = values
        for part in path[:-1]:
            below = below[part]
        below[name] = plain[name]
    return values


def _unused(section: Section, above: _Path) -> Iterator[tuple[_Path, Section, str]]:
    """Settings without effect that are not at their defaults: path, the section they stand in, and reason."""
    for key, reason in section.unused_settings():
        *keys, name = key.split(".")
        way = [int(part) if part.isdigit() else part for part in keys]
        owner: Any = reduce(_at, way, section)
        field = type(owner).model_fields.get(name)  # not every choice has it
        if field is not None and getattr(owner, name) != field.get_default(call_default_factory=True):
            yield (*above, *way, name), owner, reason
    for name in type(section).model_fields:
        value = getattr(section, name)
        for index, item in enumerate(value) if isinstance(value, list | tuple) else ((None, value),):
            if isinstance(item, Section):
                yield from _unused(item, (*above, name) if index is None else (*above, name, index))


def _at(owner: Any, part: str | int) -> Any:
    """The value of a section under a name, or of a list under a number."""
    return owner[part] if isinstance(part, int) else getattr(owner, part)

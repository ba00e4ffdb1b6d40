"""Finds settings that change nothing: those written in a run file, and those that a run recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from deepwire.config.base import Section
from deepwire.config.messages import shown
from deepwire.config.tree import MappingNode, Origin, PlainValue, node_at

_Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Idle:
    """A setting that changes nothing: where it was written, and a line that says why."""

    origin: Origin
    text: str


def idle_settings(section: Section, tree: MappingNode) -> Mapping[str, Idle]:
    """What ``tree`` sets in vain, by dotted key; ``section`` was built from it."""
    found: dict[str, Idle] = {}
    for path, _, reason in _idle(section, ()):
        node = node_at(tree, path)
        if node is not None:
            name = ".".join(str(part) for part in path)
            value = "" if isinstance(node, MappingNode) else f" {shown(node)}"
            found[name] = Idle(node.origin, f"{name}:{value} has no effect: {reason}")
    return found


def effective(section: Section) -> dict[str, PlainValue]:
    """The values of a section for JSON, those that change nothing at their defaults.

    So settings that mean the same are the same.
    """
    values = section.model_dump(mode="json")
    for path, owner, _ in _idle(section, ()):
        name = str(path[-1])
        default = type(owner).model_fields[name].get_default(call_default_factory=True)
        plain = owner.model_copy(update={name: default}).model_dump(mode="json", include={name})
        below: Any = values
        for part in path[:-1]:
            below = below[part]
        below[name] = plain[name]
    return values


def _idle(section: Section, above: _Path) -> Iterator[tuple[_Path, Section, str]]:
    """Settings without effect that are not at their defaults: path, the section they stand in, and reason."""
    for key, reason in section.without_effect():
        *way, name = key.split(".")
        owner: Section = reduce(getattr, way, section)
        default: object = type(owner).model_fields[name].get_default(call_default_factory=True)
        if getattr(owner, name) != default:
            yield (*above, *way, name), owner, reason
    for name in type(section).model_fields:
        value = getattr(section, name)
        for index, item in enumerate(value) if isinstance(value, list | tuple) else ((None, value),):
            if isinstance(item, Section):
                yield from _idle(item, (*above, name) if index is None else (*above, name, index))

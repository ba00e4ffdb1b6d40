"""Finds what is written in a run file and changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from deepwire.config.base import Section
from deepwire.config.messages import shown
from deepwire.config.tree import Keys, Origin, node_at


@dataclass(frozen=True)
class Idle:
    """A setting that changes nothing: where it was written, and a line that says why."""

    origin: Origin
    text: str


def idle_settings(section: Section, tree: Keys) -> Mapping[str, Idle]:
    """What ``tree`` sets in vain, by dotted key; ``section`` was built from it."""
    found: dict[str, Idle] = {}
    _collect(section, (), tree, found)
    return found


def _collect(section: Section, path: tuple[str | int, ...], tree: Keys, found: dict[str, Idle]) -> None:
    for key, reason in section.without_effect():
        whole = (*path, *key.split("."))
        node = node_at(tree, whole)
        if node is not None and not _is_default(section, key):
            name = ".".join(str(part) for part in whole)
            value = "" if isinstance(node, Keys) else f" {shown(node)}"
            found[name] = Idle(node.origin, f"{name}:{value} has no effect: {reason}")
    for name in type(section).model_fields:
        value = getattr(section, name)
        for index, item in enumerate(value) if isinstance(value, list | tuple) else ((None, value),):
            if isinstance(item, Section):
                _collect(item, (*path, name) if index is None else (*path, name, index), tree, found)


def _is_default(section: Section, key: str) -> bool:
    *above, name = key.split(".")
    owner = reduce(getattr, above, section)
    default: object = type(owner).model_fields[name].get_default(call_default_factory=True)
    return bool(getattr(owner, name) == default)

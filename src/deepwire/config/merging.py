"""Settings on top of settings: files on what they extend, ``key=value`` on files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deepwire.config.section import (
    Section,
    alternatives,
    child,
    chosen_by_type,
    default_type,
    sections,
    shorthand_at,
)
from deepwire.config.yaml_tree import Node, Problems, SourceLocation, parse_yaml
from deepwire.errors import UsageError

COMMAND_LINE = "command line"
"""What messages call settings that were given to a command."""


def merge(
    base: Node, later: Node, annotation: object | None, path: tuple[str, ...] = (), *, whole: bool = False
) -> Node:
    """Merge ``later`` into ``base``: mappings key by key, everything else replaces.

    A section with nothing in it changes nothing, unless null means that what it sets is not used. A mapping
    of another ``type`` replaces, too. Keys refine a plain value that stands for a section: a name (without
    another ``type``; ``depth_lstm`` stands for ``{type: depth_lstm}``), or that of a `ShorthandSection`.
    ``path`` is where they stand, for errors. Where ``base`` is the ``whole`` of what is below, a mapping
    without a type is of its default one.
    """
    if not isinstance(later.value, dict):
        return base if is_empty_section(later, annotation) else later
    if isinstance(base.value, list) and later.value and all(key.isdecimal() for key in later.value):
        return _merge_items(base, later, annotation, path, whole=whole)
    old = _written_out(base, later.value, annotation)
    if old is None:
        return later
    before = old["type"].value if "type" in old else default_type(annotation) if whole else None
    tag = later.value["type"].value if "type" in later.value else before
    if before is not None and tag != before:
        return later
    entries = dict(old)
    for key, value in later.value.items():
        below = child(annotation, key, tag)
        inner = entries.get(key)
        entries[key] = value if inner is None else merge(inner, value, below, (*path, key), whole=whole)
    return Node(entries, later.location)


def _written_out(base: Node, later: dict[str, Node], annotation: object | None) -> dict[str, Node] | None:
    """The settings of a mapping, or those that a plain value stands for; None where they are replaced."""
    if isinstance(base.value, dict):
        return base.value
    if isinstance(base.value, list) or base.value is None:
        return None
    keys: tuple[str, ...] = ()
    if isinstance(base.value, str) and chosen_by_type(annotation):
        keys = ("type",)
    elif (section := shorthand_at(annotation)) and later.keys().isdisjoint(section.instead_of_plain):
        keys = section.plain_sets
    return dict.fromkeys(keys, base) if keys else None


def is_empty_section(node: Node, annotation: object | None) -> bool:
    """Whether nothing is written where a section must be."""
    return node.value is None and bool(sections(annotation)) and type(None) not in alternatives(annotation)


def _merge_items(
    base: Node, later: Node, annotation: object | None, path: tuple[str, ...], *, whole: bool
) -> Node:
    assert isinstance(base.value, list)
    assert isinstance(later.value, dict)
    items = list(base.value)
    for key, value in later.value.items():
        index = int(key[:9])
        if index >= len(items):
            raise UsageError(
                f"{value.location}: {'.'.join(path)}: no item {key}: it has {len(items)}, counted from 0"
            )
        items[index] = merge(items[index], value, child(annotation, index), (*path, key), whole=whole)
    return Node(items, base.location)


def tree_of_overrides(
    section: type[Section], overrides: Sequence[tuple[str, str]], problems: Problems, example: str
) -> Node:
    """The tree of ``key.sub=value`` settings; whether ``section`` has them is not looked at here.

    Args:
        section: What they are settings of.
        overrides: The texts, each with what messages call its place; later ones win.
        problems: Receives those that are no settings.
        example: A right one, for errors.
    """
    changes = Node({}, SourceLocation(COMMAND_LINE, None, Path.cwd()))
    for place, text in overrides:
        location = SourceLocation(place, None, Path.cwd())
        key, equals, value = text.partition("=")
        parts = key.strip().split(".")
        if not equals or not all(parts):
            problems.add(location, f"{text!r} is not key=value, such as {example}")
        elif parts == ["extends"]:
            problems.add(location, "extends: cannot be set here; write it into a run file")
        else:
            node = parse_yaml(value, location, problems, tuple(parts)) or Node(None, location)
            for part in reversed(parts):
                node = Node({part: node}, location)
            changes = merge(changes, node, section)
    return changes

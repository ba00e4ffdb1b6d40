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
from deepwire.config.yaml_tree import (
    MappingNode,
    Node,
    Problems,
    ScalarNode,
    SequenceNode,
    SourceLocation,
    parse_yaml,
    plain,
)
from deepwire.errors import UsageError

COMMAND_LINE = "command line"
"""What messages call settings that were given to a command."""


def merge(
    base: Node,
    later: Node,
    annotation: object | None,
    path: tuple[str, ...] = (),
    *,
    whole: bool = False,
) -> Node:
    """Merge ``later`` into ``base``: mappings key by key, everything else replaces.

    A section with nothing in it changes nothing, unless null means that what it sets is not used. A mapping
    of another ``type`` replaces, too. Keys refine a plain value that stands for a section: a name (without
    another ``type``; ``depth_lstm`` stands for ``{type: depth_lstm}``), or that of a `ShorthandSection`.
    ``path`` is where they stand, for errors. Where ``base`` is the ``whole`` of what is below, a mapping
    without a type is of its default one.
    """
    if not isinstance(later, MappingNode):
        return base if is_empty_section(later, annotation) else later
    if isinstance(base, ScalarNode) and base.value is not None:
        base = _written_out(base, later, annotation)
    if isinstance(base, SequenceNode) and later.entries and all(key.isdecimal() for key in later.entries):
        return _merge_items(base, later, annotation, path, whole=whole)
    if not isinstance(base, MappingNode):
        return later
    old, new = base.entries.get("type"), later.entries.get("type")
    usual = default_type(annotation) if whole and old is None else None
    before = old.value if isinstance(old, ScalarNode) else usual
    if before is not None and isinstance(new, ScalarNode) and before != new.value:
        return later
    entries = dict(base.entries)
    tag = getattr(new or old, "value", None)
    for key, value in later.entries.items():
        below = child(annotation, key, tag)
        inner = entries.get(key)
        entries[key] = value if inner is None else merge(inner, value, below, (*path, key), whole=whole)
    return MappingNode(entries, later.location)


def _written_out(plain: ScalarNode, later: MappingNode, annotation: object | None) -> Node:
    """The settings that a plain value stands for; itself where it stands for none or is replaced."""
    keys: tuple[str, ...] = ()
    if isinstance(plain.value, str) and chosen_by_type(annotation):
        keys = ("type",)
    elif (section := shorthand_at(annotation)) and later.entries.keys().isdisjoint(section.instead_of_plain):
        keys = section.plain_sets
    return MappingNode(dict.fromkeys(keys, plain), plain.location) if keys else plain


def is_empty_section(node: Node, annotation: object | None) -> bool:
    """Whether nothing is written where a section must be."""
    null = isinstance(node, ScalarNode) and node.value is None
    return null and bool(sections(annotation)) and type(None) not in alternatives(annotation)


def _merge_items(
    base: SequenceNode, later: MappingNode, annotation: object | None, path: tuple[str, ...], *, whole: bool
) -> Node:
    items = list(base.items)
    for key, value in later.entries.items():
        index = int(key[:9])
        if index >= len(items):
            raise UsageError(
                f"{value.location}: {'.'.join(path)}: no item {key}: it has {len(items)}, counted from 0"
            )
        items[index] = merge(items[index], value, child(annotation, index), (*path, key), whole=whole)
    return SequenceNode(items, base.location)


def _override(
    changes: MappingNode,
    text: str,
    section: type[Section],
    problems: Problems,
    example: str,
) -> MappingNode:
    """The tree of changes after ``key.sub=value``."""
    location = changes.location
    key, equals, value = text.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        problems.add(location, f"{text!r} is not key=value, such as {example}")
        return changes
    if parts == ["extends"]:
        problems.add(location, "extends: cannot be set here; write it into a run file")
        return changes
    node = parse_yaml(value, location, problems, tuple(parts)) or ScalarNode(None, location)
    for part in reversed(parts):
        node = MappingNode({part: node}, location)
    merged = merge(changes, node, section)
    return merged if isinstance(merged, MappingNode) else changes


def tree_of_overrides(
    section: type[Section], overrides: Sequence[str], problems: Problems, example: str
) -> MappingNode:
    """The tree of ``key.sub=value`` settings; whether ``section`` has them is not looked at here.

    Args:
        section: What they are settings of.
        overrides: The texts; later ones win.
        problems: Receives those that are no settings.
        example: A right one, for errors.
    """
    changes = MappingNode({}, SourceLocation(COMMAND_LINE, None, Path.cwd()))
    for text in overrides:
        changes = _override(changes, text, section, problems, example)
    return changes


def read_overrides(section: type[Section], overrides: Sequence[str], example: str) -> dict[str, object]:
    """The plain values of `tree_of_overrides`.

    Raises:
        UsageError: With one line for each that is no setting.
    """
    problems = Problems()
    changes = tree_of_overrides(section, overrides, problems, example)
    problems.raise_if_any()
    return {key: plain(value) for key, value in changes.entries.items()}

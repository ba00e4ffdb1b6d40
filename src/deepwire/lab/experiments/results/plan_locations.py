"""Where a plan says what is wrong in one of its runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from deepwire.config.merging import COMMAND_LINE
from deepwire.config.yaml_tree import MappingNode, Node, ScalarNode, SequenceNode, SourceLocation
from deepwire.errors import UsageError
from deepwire.lab.experiments.results.results_plan import SystemPlan


def in_plan(
    error: UsageError, called: str, overrides: Sequence[str], tree: MappingNode, system: str
) -> UsageError:
    """The error of a run, with the place in the plan of each setting that it is about.

    Args:
        error: What reading the run file with `overrides` raised.
        called: What messages call the run.
        overrides: The settings of the plan in it, later ones win.
        tree: The plan as it was written.
        system: Which of its systems it is a run of.
    """
    places = dict(_places(tree, system))
    lines = []
    for line in error.message.splitlines():
        given = line.removeprefix(f"{COMMAND_LINE}: ")
        override = None if given == line else _meant(given, overrides)
        place = places.get(override or "")
        lines.append(f"{called}: {line if place is None and override is None else given}")
        if place is not None:
            lines[-1] = f"{place}: {lines[-1]}"
    return UsageError("\n".join(lines), error.hint)


def _meant(line: str, overrides: Sequence[str]) -> str | None:
    """The setting that a line without its place is about."""
    key, _, text = line.partition(":")
    for override in reversed(overrides):
        name = override.partition("=")[0].strip()
        of_parent = name.startswith(f"{key}.") and name.rpartition(".")[2] in re.findall(r"\w+", text)
        if key == name or key.startswith(f"{name}.") or of_parent or line.startswith(repr(override)):
            return override
    return None


def _places(tree: MappingNode, system: str) -> Iterator[tuple[str, SourceLocation]]:
    """Each setting as runs have it, and where it was written; those of the system come last."""
    for key in ("settings", "directions", "families", "search"):
        yield from _texts(tree.entries.get(key))
    systems = tree.entries.get("systems")
    own = systems.entries.get(system) if isinstance(systems, MappingNode) else None
    yield from _texts(own)
    if isinstance(own, MappingNode):
        for text, place in _texts(own.entries.get("both")):
            for override in SystemPlan(both=(text,)).overrides():
                yield override, place


def _texts(node: Node | None) -> Iterator[tuple[str, SourceLocation]]:
    if isinstance(node, ScalarNode):
        yield str(node.value), node.location
    elif node is not None:
        for below in node.items if isinstance(node, SequenceNode) else node.entries.values():
            yield from _texts(below)

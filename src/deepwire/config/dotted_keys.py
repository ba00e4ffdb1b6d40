"""Nested settings by dotted keys, as they are written on the command line: ``training.max_updates``."""

from __future__ import annotations

from collections.abc import Mapping


def flatten(tree: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """The leaves of nested mappings by dotted key; lists are leaves."""
    leaves: dict[str, object] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        leaves.update(flatten(value, f"{name}.") if isinstance(value, Mapping) else {name: value})
    return leaves

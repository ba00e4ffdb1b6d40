"""Modules, classes and functions that the documentation names exist."""

from __future__ import annotations

import re
from functools import reduce
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
NAMES = {
    match[1]: page.name
    for page in PAGES
    for match in re.finditer(r"`(deepwire(?:\.\w+)+)(?:\(\))?`", page.read_text(encoding="utf-8"))
}


def module_in(name: str) -> str:
    """The longest beginning of a name that is a module; modules that need a missing package count too."""
    module = "deepwire"
    for part in name.split(".")[1:]:
        if not hasattr(import_module(module), "__path__") or find_spec(f"{module}.{part}") is None:
            break
        module = f"{module}.{part}"
    return module


def test_there_are_documented_names() -> None:
    assert "deepwire.model.kv_cache.CacheIndex.reorder" in NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_documented_names_exist(name: str) -> None:
    module = module_in(name)
    attributes = name.removeprefix(module).split(".")[1:]
    try:
        reduce(getattr, attributes, import_module(module) if attributes else None)
    except AttributeError as error:
        pytest.fail(f"{NAMES[name]}: {name}: {error}")

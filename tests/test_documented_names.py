"""Modules, classes, functions and files that the documentation names exist."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*/*.md")])
NAMES = {
    match[1]: page.name
    for page in PAGES
    for match in re.finditer(r"`(deepwire(?:\.\w+)+)(?:\(\))?`", page.read_text(encoding="utf-8"))
}


FILES = {
    match[1]: page.name
    for page in PAGES
    if not page.name.startswith("coming-from")  # scripts of other toolkits
    for match in re.finditer(r"`([a-z_/0-9]+\.py)`", page.read_text(encoding="utf-8"))
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
    assert "test_rezero.py" in FILES


@pytest.mark.parametrize("name", sorted(FILES))
def test_documented_files_exist(name: str) -> None:
    """A page may leave out the folders that lead to a file."""
    files = (
        path
        for folder in ("src", "tests", "benchmarks", "examples")
        for path in (ROOT / folder).rglob("*.py")
    )
    assert any(f"/{path.relative_to(ROOT)}".endswith(f"/{name}") for path in files), (
        f"{FILES[name]}: there is no file {name}"
    )


@pytest.mark.parametrize("name", sorted(NAMES))
def test_documented_names_exist(name: str) -> None:
    module = module_in(name)
    attributes = name.removeprefix(module).split(".")[1:]
    found: object = import_module(module) if attributes else None
    for attribute in attributes:
        assert hasattr(found, attribute), f"{NAMES[name]}: {name}: there is no {attribute}"
        found = getattr(found, attribute)

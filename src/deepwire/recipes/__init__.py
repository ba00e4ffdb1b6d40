"""Recipes: run files shipped with the package. Their paths start from the working directory."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from deepwire.errors import UsageError

FOLDER = Path(__file__).parent

_PART = re.compile(r"[a-z0-9][a-z0-9_-]*")


def names() -> list[str]:
    """The names of all recipes, sorted: ``multi30k/base``, ..."""
    return sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.yaml"))


def find(name: str) -> Path | None:
    """The file of a recipe; None if there is no such recipe."""
    # Looking through all names for each of them would take longer than reading the recipes.
    path = FOLDER / f"{name}.yaml"
    return path if all(map(_PART.fullmatch, name.split("/"))) and path.is_file() else None


def is_run_file(name: str) -> bool:
    """Whether a name is that of a run file or recipe, and not of a model.

    Raises:
        UsageError: There is no such thing at all.
    """
    if Path(name).suffix in {".yaml", ".yml"} or find(name) is not None:
        return True
    if Path(name).is_dir() or "@" in name:
        return False
    if not Path(name).exists():
        raise UsageError(f"{name}: no such run file, recipe or model", unknown(name).hint)
    return True


def below(name: str) -> list[str]:
    """The recipe of this name, or all recipes of the folder of this name.

    Raises:
        UsageError: If there is neither.
    """
    matching = [known for known in names() if known == name or known.startswith(f"{name.rstrip('/')}/")]
    if not matching or not name:
        raise unknown(name)
    return matching


def unknown(name: str) -> UsageError:
    """The error for a name that is no recipe, with the closest one as a hint."""
    known = names()
    last = name.rpartition("/")[2]
    # A folder that two names have in common does not bring them near each other.
    similar = difflib.get_close_matches(name, known)
    near = [n for n in similar if difflib.get_close_matches(last, [n.rpartition("/")[2]])]
    close = near or [n for n in known if name and name in n]
    hint = f"did you mean {close[0]}?" if close else "'deepwire recipes' lists the recipes"
    return UsageError(f"{name}: no such recipe", hint)

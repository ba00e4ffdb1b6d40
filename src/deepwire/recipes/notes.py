"""What a recipe says about itself: its ``recipe`` section."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from deepwire import recipes
from deepwire.config.base import Section
from deepwire.config.quantities import Count
from deepwire.config.reader import Document, check, read_document
from deepwire.config.tree import Keys, Problems


class RecipeNote(Section):
    """The ``recipe`` section: where a recipe comes from and what was published. A run does not use it."""

    description: str = Field(description="one line")
    paper: str = Field(default="", description="authors, year, title")
    row: str = Field(default="", description="table and row of the paper")
    published: dict[str, float | str] = Field(default_factory=dict, description="test set: reported score")
    parameters: Count | None = Field(default=None, ge=1, description="parameters of the model, where known")


def read_note(name: str) -> RecipeNote:
    """The note of a shipped recipe, without reading the rest of it into settings.

    Raises:
        UsageError: If there is no such recipe or its file is damaged.
    """
    path = recipes.find(name)
    if path is None:
        raise recipes.unknown(name)
    problems = Problems()
    tree = read_document(Document(path, f"recipe {name}", Path.cwd()), problems)
    problems.raise_if_any()
    note = tree.entries.get("recipe")
    return check(RecipeNote, note) if isinstance(note, Keys) else RecipeNote(description="")

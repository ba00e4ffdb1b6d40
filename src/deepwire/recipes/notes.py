"""The ``recipe`` section, in which a recipe describes itself."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from deepwire import recipes
from deepwire.config.counts import Count
from deepwire.config.section import Section
from deepwire.config.settings_reader import SettingsDocument, check, read_document
from deepwire.config.yaml_tree import Problems


class PublishedSize(Section):
    """The number of parameters that a paper prints for a row, and what it is counted at."""

    printed: str = Field(pattern=r"^[0-9]{1,6}(\.[0-9]{1,6})?M$", description="as printed, such as 70.25M")
    vocabulary: Count = Field(ge=5, description="entries of the vocabulary, or of its target side")
    source_vocabulary: Count | None = Field(
        default=None, ge=5, description="entries of the source side; default: one vocabulary for both"
    )
    differs: str = Field(
        default="", description="why the printed number is known not to follow from the model; empty: it does"
    )

    @property
    def vocabularies(self) -> tuple[int, int]:
        """Entries of the source and of the target side."""
        return (self.source_vocabulary or self.vocabulary, self.vocabulary)


class RecipeParameter(Section):
    """A setting that a figure varies, or several of one value: ``deepwire train NAME parameter=value``."""

    sets: tuple[str, ...] = Field(min_length=1, description="dotted keys that get the value")
    values: tuple[int | str, ...] = Field(
        min_length=1, description="those of the figure; any other that suits the keys may be given too"
    )


class RecipeNote(Section):
    """The ``recipe`` section: where a recipe comes from and what was published. A run does not use it."""

    description: str = Field(description="one line")
    paper: str = Field(default="", description="authors, year, title")
    row: str = Field(default="", description="tables and row of the paper")
    published: dict[str, float | str] = Field(
        default_factory=dict,
        description="test set or speed: reported number, or what was reported in its place",
    )
    size: PublishedSize | None = Field(default=None, description="reported number of parameters")
    parameters: dict[str, RecipeParameter] = Field(
        default_factory=dict, description="short names of settings that a figure varies"
    )
    remark: str = Field(default="", description="what the sources leave open and what was chosen, one line")

    @model_validator(mode="after")
    def _rows_belong_to_papers(self) -> RecipeNote:
        if (self.row or self.size is not None) and not self.paper:
            raise ValueError("row and size need the paper they come from")
        return self


def read_note(name: str) -> RecipeNote:
    """The note of a shipped recipe, without reading the rest of it into settings.

    Raises:
        UsageError: If there is no such recipe or its file is damaged.
    """
    path = recipes.find(name)
    if path is None:
        raise recipes.unknown(name)
    return note_of(SettingsDocument(path, f"recipe {name}", Path.cwd()))


def note_of(document: SettingsDocument) -> RecipeNote:
    """The note of a run file; an empty one where it has none.

    Raises:
        UsageError: If the file cannot be read, or the note is wrong.
    """
    problems = Problems()
    tree = read_document(document, problems)
    problems.raise_if_any()
    note = tree.below("recipe")
    return RecipeNote(description="") if note is None else check(RecipeNote, note)

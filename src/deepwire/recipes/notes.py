"""The ``recipe`` section, in which a recipe describes itself, and its short names of settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Literal, cast

from pydantic import Field, model_validator

from deepwire import recipes
from deepwire.config.counts import Count
from deepwire.config.section import Section
from deepwire.config.settings_reader import SettingsDocument, check, read_document
from deepwire.config.yaml_tree import PlainValue, Problems
from deepwire.errors import UsageError

Verdict = Literal["fits", "known", "differs"]


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

    @property
    def decimals(self) -> int:
        """Digits behind the point of the printed number."""
        return len(self.printed[:-1].partition(".")[2])

    def difference(self, counted: int) -> Decimal:
        """A count minus the printed number, in millions."""
        return Decimal(counted) / 1_000_000 - Decimal(self.printed[:-1])

    def verdict(self, counted: int) -> Verdict:
        """fits: a count rounds to the printed digits; known: it does not, and `differs` says why; differs."""
        if abs(self.difference(counted)) <= Decimal(10) ** -self.decimals / 2:
            return "fits"
        return "known" if self.differs else "differs"


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


Parameters = Mapping[str, RecipeParameter]


def expanded(overrides: Sequence[str], parameters: Parameters, sections: Iterable[str]) -> list[str]:
    """``key=value`` settings with the keys that parameters stand for.

    Args:
        overrides: As given; ``key.sub=value`` stays as it is.
        parameters: What the run file declares.
        sections: Keys without a dot that are no parameters.

    Raises:
        UsageError: A key is neither.
    """
    result: list[str] = []
    for text in overrides:
        key, equals, value = text.partition("=")
        name = key.strip()
        if not equals or "." in name or name in sections or not parameters:
            result.append(text)
        elif name in parameters:
            result += [f"{target}={value}" for target in parameters[name].sets]
        else:
            raise UsageError(
                f"command line: {name}: is neither a section nor a parameter of this recipe",
                f"its parameters are {', '.join(parameters)}",
            )
    return result


def name_suffix(parameters: Parameters, resolved: Mapping[str, PlainValue]) -> str:
    """The suffix of a run's name for the values, such as ``-layers-25``: each its own directory."""
    suffix, whole = "", cast("PlainValue", resolved)
    for name, parameter in parameters.items():
        value = whole
        for key in parameter.sets[0].split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, int | str):
            suffix += f"-{name}-{str(value).replace('/', '-')}"
    return suffix

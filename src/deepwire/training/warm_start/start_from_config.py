"""The ``training.start_from`` section: the model that a run begins with."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from deepwire.config.section import Section
from deepwire.training.patterns import Patterns


class StartFromSection(Section):
    """A model whose parameters a new run begins with."""

    model: str = Field(
        min_length=1,
        description="a run (its best checkpoint), RUN@last, RUN@avg5 or a model directory, named from the "
        "working directory as in the commands",
    )
    allow_missing: Patterns = Field(
        default=(), description="names of parameters that may be missing there: they begin untrained"
    )
    allow_unexpected: Patterns = Field(
        default=(), description="names of parameters there that this run need not have: they are left out"
    )
    allow_changed: Patterns = Field(
        default=(), description="settings such as model.heads that may differ though all parameters fit"
    )


def _with_model(value: object) -> object:
    return {"model": value} if isinstance(value, str) else value


StartFromConfig = Annotated[StartFromSection, BeforeValidator(_with_model)]
"""Such a section; a plain name stands for one with this model and nothing allowed."""

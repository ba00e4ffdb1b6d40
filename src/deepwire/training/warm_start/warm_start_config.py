"""The ``training.start_from`` and ``training.pretrained`` sections: the model that a new run begins with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from deepwire.config.section import Section
from deepwire.training.freezing import Patterns


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


StartFromConfig = Annotated[StartFromSection, BeforeValidator(_with_model, json_schema_input_type=str)]
"""Such a section; a plain name stands for one with this model and nothing allowed."""


DecoderLayers = Literal["none", "bottom", "spread"]


class PretrainedSection(Section):
    """A pretrained encoder of XLM-R's layout, whose parameters a new run begins with."""

    encoder: Path = Field(
        description="folder with config.json, model.safetensors and sentencepiece.bpe.model, as downloaded "
        "from Hugging Face"
    )
    decoder: DecoderLayers = Field(
        "spread",
        description="which of its layers the decoder's layers begin with: none, the lowest ones (bottom), or "
        "some at equal distance up to the top one (spread); cross-attention begins untrained",
    )


def _with_encoder(value: object) -> object:
    return {"encoder": value} if isinstance(value, str) else value


PretrainedConfig = Annotated[PretrainedSection, BeforeValidator(_with_encoder, json_schema_input_type=str)]
"""Such a section; a plain path stands for one with this encoder."""

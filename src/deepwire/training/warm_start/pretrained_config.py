"""The ``training.pretrained`` section: the encoder that a new run begins with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from deepwire.config.section import Section

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


PretrainedConfig = Annotated[PretrainedSection, BeforeValidator(_with_encoder)]
"""Such a section; a plain path stands for one with this encoder."""

"""The ``training.start_from`` and ``training.pretrained`` sections: the model that a new run begins with."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from deepwire.config.section import MAY_CHANGE, ShorthandSection
from deepwire.training.freezing import Patterns


class StartFromSection(ShorthandSection):
    """A model whose parameters a new run begins with; a plain name is the model, with nothing allowed."""

    written_as = (str,)
    plain_sets = ("model",)

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


DecoderLayers = Literal["none", "bottom", "spread"]


class PretrainedSection(ShorthandSection):
    """A pretrained encoder of XLM-R's layout, whose parameters a new run begins with; a plain path is it."""

    written_as = (str,)
    plain_sets = ("encoder",)

    encoder: Path = Field(
        json_schema_extra=MAY_CHANGE,
        description="folder with config.json, model.safetensors and sentencepiece.bpe.model, as downloaded "
        "from Hugging Face",
    )
    decoder: DecoderLayers = Field(
        "spread",
        description="which of its layers the decoder's layers begin with: none, the lowest ones (bottom), or "
        "some at equal distance up to the top one (spread); cross-attention begins untrained",
    )

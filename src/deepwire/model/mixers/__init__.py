"""Token mixers: how a position sees the others. One file each; this is their table."""

from typing import Annotated

from pydantic import Field

from deepwire.model.mixers.average_attention import AverageAttentionConfig
from deepwire.model.mixers.self_attention import SelfAttentionConfig
from deepwire.model.named import by_name

MixerConfig = Annotated[
    Annotated[
        SelfAttentionConfig | AverageAttentionConfig,
        Field(discriminator="type"),
    ],
    by_name,
]

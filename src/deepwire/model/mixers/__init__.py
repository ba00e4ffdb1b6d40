"""Token mixers: how a position sees the others. One file each; this is their table."""

from typing import Annotated

from deepwire.model.mixers.self_attention import SelfAttentionConfig
from deepwire.model.named import by_name

# The next mixer joins with `|`, and `Field(discriminator="type")` in front of `by_name`.
MixerConfig = Annotated[SelfAttentionConfig, by_name]

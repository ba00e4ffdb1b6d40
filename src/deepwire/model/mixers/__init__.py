"""Token mixers: how a position sees the others. One file each; this is their table."""

from typing import Annotated

from pydantic import Field

from deepwire.model.mixers.atr import ATRConfig
from deepwire.model.mixers.average_attention import AverageAttentionConfig
from deepwire.model.mixers.gru import GRUConfig
from deepwire.model.mixers.ln_lstm import LNLSTMConfig
from deepwire.model.mixers.merged_attention import MergedAttentionConfig
from deepwire.model.mixers.mhplstm import MHPLSTMConfig
from deepwire.model.mixers.self_attention import SelfAttentionConfig
from deepwire.model.named import by_name

MixerConfig = Annotated[
    Annotated[
        SelfAttentionConfig
        | AverageAttentionConfig
        | LNLSTMConfig
        | ATRConfig
        | GRUConfig
        | MergedAttentionConfig
        | MHPLSTMConfig,
        Field(discriminator="type"),
    ],
    by_name,
]

"""Token mixers: how a position sees the others. One file each; this is their table."""

from deepwire.config.choice import ChoiceTable
from deepwire.model.mixers.average_attention import AverageAttentionConfig
from deepwire.model.mixers.gated_deltanet import GatedDeltaNetConfig
from deepwire.model.mixers.gla import GLAConfig
from deepwire.model.mixers.linear_rnn import MinGRUConfig, MinLSTMConfig, SSRUConfig
from deepwire.model.mixers.luna import LunaConfig
from deepwire.model.mixers.mamba2 import Mamba2Config
from deepwire.model.mixers.merged_attention import MergedAttentionConfig
from deepwire.model.mixers.mhplstm import MHPLSTMConfig
from deepwire.model.mixers.mixed_attention import MixedAttentionConfig
from deepwire.model.mixers.mixer import MixerSection
from deepwire.model.mixers.mlstm import MLSTMConfig
from deepwire.model.mixers.per_layer import PerLayerConfig
from deepwire.model.mixers.recurrent import ATRConfig, GRUConfig, LNLSTMConfig
from deepwire.model.mixers.self_attention import SelfAttentionConfig
from deepwire.model.mixers.shared_values import LIMeConfig, ValueResidualConfig

MIXERS = ChoiceTable(
    MixerSection,
    [
        SelfAttentionConfig,
        AverageAttentionConfig,
        LNLSTMConfig,
        LunaConfig,
        ATRConfig,
        GRUConfig,
        MergedAttentionConfig,
        MixedAttentionConfig,
        MHPLSTMConfig,
        ValueResidualConfig,
        LIMeConfig,
        SSRUConfig,
        MinGRUConfig,
        MinLSTMConfig,
        GLAConfig,
        MLSTMConfig,
        Mamba2Config,
        GatedDeltaNetConfig,
        PerLayerConfig,
    ],
)

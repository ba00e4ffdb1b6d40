"""Connections: how the sub-layers of a layer join the stream. One file each; this is their table."""

from deepwire.config.choice import ChoiceTable
from deepwire.model.connections.admin import AdminConfig
from deepwire.model.connections.attn_res import AttnResConfig
from deepwire.model.connections.collaboration import CollaborationConfig
from deepwire.model.connections.connection import ConnectionSection
from deepwire.model.connections.delta import DeltaConfig
from deepwire.model.connections.depth_lstm import DepthLSTMConfig, DepthRNNConfig
from deepwire.model.connections.frac import FracConfig
from deepwire.model.connections.hyper import HyperConfig
from deepwire.model.connections.laurel import LAuReLConfig
from deepwire.model.connections.manifold import MHCConfig, MHCLiteConfig
from deepwire.model.connections.pre_norm_variants import (
    LayerNormScalingConfig,
    LayerScaleConfig,
    PeriLNConfig,
)
from deepwire.model.connections.residual import PostNormConfig, PreNormConfig
from deepwire.model.connections.rezero import ReZeroConfig
from deepwire.model.connections.rnmt import RNMTConfig
from deepwire.model.connections.runge_kutta import RungeKuttaConfig
from deepwire.model.connections.scaled_post_norm import (
    B2TConfig,
    BranchNormConfig,
    DeepNormConfig,
    KeelConfig,
    ResiDualConfig,
)
from deepwire.model.connections.sdu import SDUConfig

CONNECTIONS = ChoiceTable(
    ConnectionSection,
    [
        PreNormConfig,
        PostNormConfig,
        DepthLSTMConfig,
        DepthRNNConfig,
        RNMTConfig,
        CollaborationConfig,
        ReZeroConfig,
        SDUConfig,
        RungeKuttaConfig,
        DeepNormConfig,
        AdminConfig,
        KeelConfig,
        BranchNormConfig,
        B2TConfig,
        ResiDualConfig,
        PeriLNConfig,
        LayerScaleConfig,
        LayerNormScalingConfig,
        LAuReLConfig,
        DeltaConfig,
        AttnResConfig,
        HyperConfig,
        FracConfig,
        MHCLiteConfig,
        MHCConfig,
    ],
)

"""Fusions: what leaves the stack. One file each; this is their table."""

from deepwire.config.choice import ChoiceTable
from deepwire.model.fusions.blocks import BlocksConfig
from deepwire.model.fusions.fusion import FusionSection
from deepwire.model.fusions.groups import GroupsConfig
from deepwire.model.fusions.mlrf import MLRFConfig
from deepwire.model.fusions.routing import DynamicCombinationConfig, DynamicRoutingConfig, EMRoutingConfig
from deepwire.model.fusions.top import TopConfig
from deepwire.model.fusions.transparent import TransparentConfig

FUSIONS = ChoiceTable(
    FusionSection,
    [
        TopConfig,
        BlocksConfig,
        DynamicCombinationConfig,
        DynamicRoutingConfig,
        EMRoutingConfig,
        GroupsConfig,
        MLRFConfig,
        TransparentConfig,
    ],
)

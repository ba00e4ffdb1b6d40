"""Aggregations: what each layer reads of the layers below. One file each; this is their table."""

from deepwire.config.choice import ChoiceTable
from deepwire.model.aggregations.aggregation import AggregationSection
from deepwire.model.aggregations.dlcl import DenseConfig, DLCLConfig
from deepwire.model.aggregations.dwa import DWAConfig
from deepwire.model.aggregations.hierarchical import HierarchicalConfig
from deepwire.model.aggregations.last import LastConfig
from deepwire.model.aggregations.mudd import MUDDConfig

AGGREGATIONS = ChoiceTable(
    AggregationSection,
    [
        LastConfig,
        DLCLConfig,
        DenseConfig,
        HierarchicalConfig,
        DWAConfig,
        MUDDConfig,
    ],
)

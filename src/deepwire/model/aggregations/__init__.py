"""Aggregations: what each layer reads of the layers below. One file each; this is their table."""

from typing import Annotated

from pydantic import Field

from deepwire.model.aggregations.dense import DenseConfig
from deepwire.model.aggregations.dlcl import DLCLConfig
from deepwire.model.aggregations.hierarchical import HierarchicalConfig
from deepwire.model.aggregations.last import LastConfig
from deepwire.model.named import by_name

AggregationConfig = Annotated[
    Annotated[LastConfig | DLCLConfig | DenseConfig | HierarchicalConfig, Field(discriminator="type")],
    by_name,
]

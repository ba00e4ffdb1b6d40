"""Aggregations: what each layer reads of the layers below. One file each; this is their table."""

from typing import Annotated

from pydantic import Field

from deepwire.model.aggregations.dlcl import DLCLConfig
from deepwire.model.aggregations.last import LastConfig
from deepwire.model.named import by_name

AggregationConfig = Annotated[
    Annotated[LastConfig | DLCLConfig, Field(discriminator="type")],
    by_name,
]

"""Fusions: what leaves the stack. One file each; this is their table."""

from typing import Annotated

from pydantic import Field

from deepwire.model.fusions.blocks import BlocksConfig
from deepwire.model.fusions.groups import GroupsConfig
from deepwire.model.fusions.mlrf import MLRFConfig
from deepwire.model.fusions.top import TopConfig
from deepwire.model.fusions.transparent import TransparentConfig
from deepwire.model.named import by_name

FusionConfig = Annotated[
    Annotated[
        TopConfig | BlocksConfig | GroupsConfig | MLRFConfig | TransparentConfig, Field(discriminator="type")
    ],
    by_name,
]

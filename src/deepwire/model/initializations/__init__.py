"""Initialisations: how parameters begin. One file each; this is their table."""

from typing import Annotated

from pydantic import Field

from deepwire.model.initializations.depth_scaled import DepthScaledConfig
from deepwire.model.initializations.fairseq import FairseqConfig
from deepwire.model.initializations.glorot import GlorotConfig
from deepwire.model.initializations.lipschitz import LipschitzConfig
from deepwire.model.initializations.pytorch import PyTorchConfig
from deepwire.model.initializations.xavier import XavierConfig
from deepwire.model.named import by_name

InitializationConfig = Annotated[
    Annotated[
        LipschitzConfig | GlorotConfig | XavierConfig | FairseqConfig | PyTorchConfig | DepthScaledConfig,
        Field(discriminator="type"),
    ],
    by_name,
]

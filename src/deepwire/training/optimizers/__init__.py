"""Optimizers: how parameters move along their gradients. One file each; this is their table."""

from typing import Annotated

from deepwire.config.choice import ChoiceTable, by_name_or
from deepwire.training.optimizers.muon import MuonConfig
from deepwire.training.optimizers.optimizer import AdamConfig, AdamWConfig, OptimizerSection

OPTIMIZERS = ChoiceTable(OptimizerSection, [AdamConfig, AdamWConfig, MuonConfig])

OptimizerChoice = Annotated[OptimizerSection, by_name_or("adamw")]
"""An optimizer section: a plain string stands for its type; a section without a type is `adamw`."""

"""Walks a built model and hands each of its maps and tables to the initialisation, with its depth."""

from __future__ import annotations

from torch import nn

from deepwire.model.embedding import Embedding, TokenEmbedding
from deepwire.model.initializations.base import Initialization
from deepwire.model.languages import LanguageEmbedding
from deepwire.model.mixers.self_attention import RelativeKeys
from deepwire.model.positions import LearnedPositions
from deepwire.model.stack import Stack


def initialize(model: nn.Module, config: Initialization) -> None:
    """Set every linear map, embedding and table of positions of a model; shared ones once."""
    layers = _layers(model)
    looked_up = {id(module.table) for module in model.modules() if isinstance(module, Embedding)}
    for module in model.modules():
        if isinstance(module, nn.Linear):
            config.linear(module, layers.get(id(module), 1))
        elif isinstance(module, TokenEmbedding):
            if id(module) in looked_up:
                config.embedding(module)
            else:
                config.projection(module)
            # Index 0 of a copy would not write through on the meta device, so fill the row in place.
            module.weight.data[module.pad_id].zero_()
        elif isinstance(module, RelativeKeys):
            config.relative_keys(module.table)
        elif isinstance(module, LearnedPositions):
            config.positions(module.table)
        elif isinstance(module, LanguageEmbedding):
            config.language_embedding(module.table)


def _layers(model: nn.Module) -> dict[int, int]:
    """The layer, from 1, that each module belongs to, by identity; others belong to several or to none."""
    found: dict[int, int] = {}
    for stack in model.modules():
        for layer, modules in enumerate(stack.modules_by_layer(), 1) if isinstance(stack, Stack) else ():
            for inner in (inner for module in modules for inner in module.modules()):
                found[id(inner)] = min(layer, found.get(id(inner), layer))
    return found

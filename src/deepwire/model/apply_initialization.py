"""How a built model gets the values that it begins with, by one of the initialisations."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from deepwire.model.embedding import Embedding, LearnedPositions, SideEmbedding, TokenEmbedding
from deepwire.model.initialization import Initialization
from deepwire.model.languages import LanguageEmbedding
from deepwire.model.matrix_places import matrices
from deepwire.model.mixers.self_attention import RelativePositions
from deepwire.model.stack import Stack


def initialize(model: nn.Module, config: Initialization, base_width: int | None = None) -> None:
    """Set every linear map, embedding and table of positions of a model; shared ones once.

    A model on the meta device has nothing to set.

    Args:
        model: The model.
        config: The initialisation.
        base_width: Begin embeddings and positions as in a model of this width; None: of their own.
    """
    if all(parameter.is_meta for parameter in model.parameters()):
        return
    layers = _layers(model) if config.needs_layers else {}
    looked_up = {id(module.table) for module in model.modules() if isinstance(module, Embedding)}
    done: set[int] = set()
    for module in model.modules():
        if isinstance(module, nn.Linear):
            if id(module.weight) not in done:
                config.linear(module, layers.get(id(module.weight), 1))
            done.add(id(module.weight))
        elif isinstance(module, TokenEmbedding):
            embeds = id(module) in looked_up
            _in_blocks(module, config.embedding if embeds else config.projection, base_width)
            # Index 0 of a copy would not write through on the meta device, so fill the row in place.
            module.weight.data[module.pad_id].zero_()
        elif isinstance(module, RelativePositions):
            config.relative_positions(module.table)
        elif isinstance(module, LearnedPositions | SideEmbedding):
            _in_columns(module.table, config.positions, base_width)
        elif isinstance(module, LanguageEmbedding):
            _in_columns(module.table, config.language_embedding, base_width)
    if config.has_gains:
        for matrix, place in matrices(model):
            matrix.mul_(config.gain(place))


def _in_blocks(module: TokenEmbedding, begin: Callable[[TokenEmbedding], None], width: int | None) -> None:
    """Set an embedding as blocks of columns, each of which begins as one of that width does."""

    def begin_table(table: Tensor) -> None:
        block = TokenEmbedding(table.size(0), table.size(1), module.pad_id)
        begin(block)
        table.copy_(block.weight)

    if width is None or width == module.weight.size(1):
        begin(module)
    else:
        _in_columns(module.weight, begin_table, width)


@torch.no_grad()
def _in_columns(table: Tensor, begin: Callable[[Tensor], None], width: int | None) -> None:
    """Set a table `[n, d]` as blocks of columns, each of which begins as one of that width does."""
    if width is None or width == table.size(1):
        begin(table)
        return
    for columns in torch.split(table, width, 1):
        block = table.new_empty(table.size(0), width)
        begin(block)
        columns.copy_(block[:, : columns.size(1)])


def _layers(model: nn.Module) -> dict[int, int]:
    """The layer, from 1, that each parameter belongs to, by identity; others belong to several or to none."""
    layers: dict[int, int] = {}
    for stack in model.modules():
        if isinstance(stack, Stack):
            layer_of = stack.parameter_layers()
            for name, parameter in stack.named_parameters():
                if name in layer_of:
                    layers[id(parameter)] = min(layer_of[name], layers.get(id(parameter), layer_of[name]))
    return layers

"""Scales of the updates of parameters, as the parametrization of a model says."""

from __future__ import annotations

from torch import nn

from deepwire.model.languages import LanguageTransform
from deepwire.model.mixers.mhplstm import HeadLinear
from deepwire.model.parametrization import Scaling, UpdateScale
from deepwire.model.translation_model import TranslationModel

# Their weights map vectors of the stream's width; every other parameter has at most one axis that grows.
_MAPS = (nn.Linear, HeadLinear, LanguageTransform)


def update_scales(model: TranslationModel) -> dict[str, UpdateScale]:
    """The factors of learning rate, decay and epsilon of each parameter, by its name in the model.

    Embeddings, learned positions and the output projection learn at the plain rate; so do final norms, biases
    and what several layers share, without decay. What is neither in encoder nor in decoder has the epsilon of
    the deeper one. Empty where the model has no parametrisation.
    """
    config = model.config
    if config.parametrization is None:
        return {}
    maps = {
        id(weight)
        for module in model.modules()
        if isinstance(module, _MAPS) and isinstance(weight := module.weight, nn.Parameter)
    }
    scalings = {side: config.scaling(side) for side in config.sides}
    deeper = max(scalings.values(), key=lambda scaling: scaling.depth)
    scales: dict[int, UpdateScale] = {}
    for side, stack in model.stacks().items():
        layers = stack.parameter_layers()
        for name, parameter in stack.named_parameters():
            if id(parameter) not in scales:
                scales[id(parameter)] = _inside(scalings[side], id(parameter) in maps, name in layers)
    return {
        name: scales.get(id(parameter)) or _outside(deeper, parameter, id(parameter) in maps)
        for name, parameter in model.named_parameters()
    }


def _inside(scaling: Scaling, maps: bool, of_layer: bool) -> UpdateScale:
    if maps:
        return scaling.matrices
    return scaling.vectors if of_layer else scaling.vectors_outside


def _outside(scaling: Scaling, parameter: nn.Parameter, maps: bool) -> UpdateScale:
    if maps:  # between encoder and decoder; no depth of a stack is theirs
        return scaling._replace(depth=1.0).matrices
    return scaling.outside if parameter.dim() > 1 else scaling.vectors_outside

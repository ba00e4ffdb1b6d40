"""Meta initialisation: building models of which only the shapes are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from deepwire.config.choice import plugins_of
from deepwire.config.section import Section
from deepwire.errors import DeepwireError
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.translation_model import TranslationModel
from deepwire.ops.process import own_random_numbers

BuiltT = TypeVar("BuiltT")

_INITIALIZERS = {
    *(getattr(nn.init, name) for name in vars(nn.init) if name.endswith("_") and not name.startswith("_")),
    Tensor.normal_,
    Tensor.uniform_,
}


class SkipInitialValues(TorchFunctionMode):
    """Skips the functions that fill a tensor with initial values, for models that get them from a file.

    On the meta device there is nothing to fill, and yet PyTorch's way to draw normal numbers there begins
    with the import of its whole compiler, about two seconds.
    """

    def __torch_function__(
        self,
        function: Callable[..., object],
        types: Sequence[type],
        arguments: Sequence[object] = (),
        options: Mapping[str, object] | None = None,
    ) -> object:
        options = options or {}
        if function in _INITIALIZERS:
            return arguments[0] if arguments else options["tensor"]
        return function(*arguments, **options)


@contextmanager
def meta_init() -> Iterator[None]:
    """Modules built here are on the meta device: they have shapes, but neither memory nor initial values."""
    with torch.device("meta"), SkipInitialValues():
        yield


def outline(config: Section, build: Callable[[], BuiltT]) -> BuiltT:
    """A model built for its shapes: on the meta device, or in memory where a plugin needs values.

    Args:
        config: The settings.
        build: Builds modules of them.
    """
    try:
        with meta_init():
            return build()
    except DeepwireError:
        raise
    except Exception:
        if not plugins_of(config):
            raise
    # A part of another package may look at values. An error that is not of the meta device comes again.
    with own_random_numbers(torch.device("cpu")):
        return build()


def meta_model(
    config: ModelConfig, source_vocabulary: int, target_vocabulary: int, languages: int = 0
) -> TranslationModel:
    """A model on the meta device: all its shapes, and no memory kept."""
    build = partial(build_model, config, source_vocabulary, target_vocabulary, languages=languages)
    model = outline(config, build)
    values = (*model.parameters(), *model.buffers())
    if all(value.is_meta for value in values):
        return model
    # A copy, as moving the model itself would give each user of a shared parameter one of its own.
    moved = {id(value): value.to("meta") for value in model.buffers()}
    moved |= {id(value): nn.Parameter(value.detach().to("meta")) for value in model.parameters()}
    return deepcopy(model, moved)

"""Meta initialisation: building models of which only the shapes are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from deepwire.config.choice import plugins_of
from deepwire.config.section import Section
from deepwire.errors import DeepwireError
from deepwire.ops.process import own_random_numbers

BuiltT = TypeVar("BuiltT")

_INITIALIZERS = {
    *(getattr(nn.init, name) for name in vars(nn.init) if name.endswith("_") and not name.startswith("_")),
    Tensor.normal_,
    Tensor.uniform_,
}


class _SkipInitialValues(TorchFunctionMode):
    """Skips the functions that fill a tensor with initial values.

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
    with torch.device("meta"), _SkipInitialValues():
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

"""Which parameters of a connection belong to one layer alone, found by walking through its calls once.

Nobody has to say it, so nobody can forget it: what a call uses between `read` and `write` is of its layer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from deepwire.model.connections.connection import Connection
from deepwire.model.context import Context


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """In evaluation mode, without dropout or random numbers; afterwards each part has its own mode again."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


@torch.no_grad()
def layers_of_parameters(connection: Connection, dim: int) -> dict[str, int]:
    """The layer, from 0, of each parameter by its name; those of several layers or of the stack are left out.

    Args:
        connection: That of a whole stack, as it was built.
        dim: Width of its stream.
    """
    like = next(connection.parameters(), torch.empty(0))
    # One position of one sentence, for the first target language; sub-layers give nothing.
    x, padding = like.new_zeros(1, 1, dim), like.new_zeros(1, 1, 1, 1)
    context = Context(torch.zeros(1, dtype=torch.int64, device=like.device), padding)
    uses = _Uses(connection)
    with evaluating(connection), uses, uses.of_modules():
        state = connection.start(x, context)
        for index, call in enumerate(connection.calls):
            uses.layer = call.layer
            read = connection.read(state, index, context)
            output = x if call.gives is None else x.new_zeros(1, 1, call.gives)
            state = connection.write(state, index, read, output, context)
            uses.layer = None
    return {name: next(iter(layers)) for name, layers in uses.layers.items() if len(layers) == 1}


class _Uses(TorchFunctionMode):
    """Notes which parameters are used, by a module or by an operation, while a layer is set.

    Attributes:
        layer: The layer that is walked through; None between layers.
        layers: The layers that use each parameter, by its name.
    """

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.layer: int | None = None
        self.layers: dict[str, set[int]] = defaultdict(set)
        self._connection = connection
        self._names = {id(parameter): name for name, parameter in connection.named_parameters()}

    def __torch_function__(
        self,
        function: Callable[..., object],
        types: Sequence[type],
        arguments: Sequence[object] = (),
        options: Mapping[str, object] | None = None,
    ) -> object:
        options = options or {}
        self._note(_tensors((*arguments, *options.values())))
        return function(*arguments, **options)

    @contextmanager
    def of_modules(self) -> Iterator[None]:
        """Also where a module hides its parameters from torch, as kernels of one's own do."""
        with ExitStack() as hooks:
            for module in self._connection.modules():
                handle = module.register_forward_pre_hook(
                    lambda module, _: self._note(module.parameters(recurse=False))
                )
                hooks.callback(handle.remove)
            yield

    def _note(self, tensors: Iterator[Tensor]) -> None:
        if self.layer is None:
            return
        for tensor in tensors:
            if id(tensor) in self._names:
                self.layers[self._names[id(tensor)]].add(self.layer)


def _tensors(values: Sequence[object]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)

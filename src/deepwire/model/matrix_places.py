"""Where the matrices of a model lie: in which stack of how many layers, and in which sub-layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from deepwire.model.layers import Linear
from deepwire.model.stack import Stack
from deepwire.model.stack_spec import SIDES, Side, Sublayer

_FOLDERS: Mapping[str, Sublayer] = {
    "mixers": "mixer",
    "crosses": "cross",
    "feed_forwards": "feed_forward",
    "inner_feed_forwards": "inner_feed_forward",
}


@dataclass(frozen=True)
class MatrixPlace:
    """Where a matrix of a stack lies.

    Attributes:
        side: The stack.
        layers, other_layers: Layers of this stack and of the other one; 0 where there is no other.
        sublayer: Of which sub-layer it is a part; None: of the connection, an aggregation or a fusion.
        attends: Whether it makes queries or keys.
    """

    side: Side
    layers: int
    other_layers: int
    sublayer: Sublayer | None
    attends: bool


def matrices(model: nn.Module) -> Iterator[tuple[Tensor, MatrixPlace]]:
    """Every matrix of the stacks of a model once; queries and keys apart from values that lie beside them."""
    stacks = {side: stack for side in SIDES if isinstance(stack := getattr(model, side, None), Stack)}
    seen: set[int] = set()
    for side, stack in stacks.items():
        other_layers = sum(other.layer_count for other in stacks.values() if other is not stack)
        for name, module in stack.named_modules():
            if not isinstance(module, nn.Linear) or id(module.weight) in seen:
                continue
            seen.add(id(module.weight))
            sublayer = _FOLDERS.get(name.split(".")[0])
            for part, attends in _parts(module):
                yield part, MatrixPlace(side, stack.layer_count, other_layers, sublayer, attends)


def _parts(module: nn.Linear) -> Iterator[tuple[Tensor, bool]]:
    """The matrices that lie side by side in one map, and whether each makes queries or keys."""
    if not isinstance(module, Linear) or module.role not in ("self_attention", "cross_attention"):
        yield module.weight.data, False
        return
    *attending, last = module.weight.data.chunk(module.parts)
    for part in attending:
        yield part, True
    yield last, not module.makes_values

"""The position-wise feed-forward sub-layer."""

from __future__ import annotations

from torch import Tensor, nn

from deepwire.model.activations import ACTIVATIONS
from deepwire.model.context import StackContext
from deepwire.ops.dropout import Dropout


class FeedForward(nn.Module):
    """W2 drop(act(W1 x + b1)) + b2 (Vaswani et al. 2017, equation 2), without residual and norm.

    With GLU, W1 maps to the stated inner width and W2 reads half of it.
    """

    def __init__(self, context: StackContext) -> None:
        super().__init__()
        self.activation, narrows = ACTIVATIONS[context.activation]
        inner, bias = context.feed_forward, context.feed_forward_bias
        self.input = nn.Linear(context.dim, inner, bias=bias != "none")
        self.output = nn.Linear(inner // narrows, context.dim, bias=bias == "both")
        self.dropout = Dropout(context.dropout.activation)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[B, T, d]` to `[B, T, d]`."""
        hidden: Tensor = self.output(self.dropout(self.activation(self.input(x))))
        return hidden

"""Root mean square norm: g x / sqrt(mean x^2 + eps) (Zhang and Sennrich 2019, equation 4).

On a CPU torch makes it of single operations, in the backward pass of more than ten. There the backward pass
of its fused layer norm does most of the work: with a mean of 0 it differs by one term.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional

# Tensors without memory stand for those of a CPU where operations are counted.
_DEVICES = ("cpu", "meta")
_EXACT = (torch.float32, torch.float64)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise `[..., d]` and multiply it by the gain `[d]`, in the number format of `x`."""
    weight = weight.to(x.dtype)
    learns = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    if learns and x.device.type in _DEVICES and x.dtype in _EXACT and not torch.compiler.is_compiling():
        normal: Tensor = _RMSNorm.apply(x, weight, eps)  # type: ignore[no-untyped-call]
        return normal
    return functional.rms_norm(x, weight.shape, weight, eps)


class _Context(FunctionCtx):
    saved_tensors: tuple[Tensor, Tensor, Tensor]


class _RMSNorm(torch.autograd.Function):
    """Keeps x and one number a vector."""

    @staticmethod
    def forward(ctx: _Context, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        size = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        rate = size.square_().div_(x.size(-1)).add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight, rate)
        normal: Tensor = (x * rate).mul_(weight)
        return normal

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, rate = ctx.saved_tensors
        of_x, of_weight, _ = torch.ops.aten.native_layer_norm_backward(
            gradient, x, weight.shape, torch.zeros_like(rate), rate, weight, None, [True, True, False]
        )
        # A layer norm takes the mean out of the gradient too.
        mean = (gradient @ weight).unsqueeze_(-1) / x.size(-1)
        return of_x.addcmul_(mean, rate), of_weight, None

"""Small layers of many parts of the model: activations, linear maps with a role, norms, feed-forward.

Every norm is called with the context of the pass, because it may be each target language's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional

from deepwire.model.context import Context
from deepwire.ops.dropout import Dropout

ActivationName = Literal["relu", "gelu", "silu", "glu"]
# Each with the factor by which it narrows the features. GLU: first half * sigmoid(second half).
ACTIVATIONS: Mapping[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "relu": (functional.relu, 1),
    "gelu": (functional.gelu, 1),
    "silu": (functional.silu, 1),
    "glu": (functional.glu, 2),
}

FeedForwardActivation = Literal["relu", "gelu", "silu", "glu", "swiglu", "geglu"]
# Of a gate that has a matrix of its own in a feed-forward network (Shazeer 2020, equation 6).
GATES: Mapping[str, Callable[[Tensor], Tensor]] = {"swiglu": functional.silu, "geglu": functional.gelu}

Role = Literal["self_attention", "cross_attention", "attention_output", "other"]
"""The place of a linear map: queries, keys or values of an attention, its output, or elsewhere."""

NormKind = Literal["layer", "rms"]
"""Layer norm, or root mean square norm: without the mean, and without a bias."""

FeedForwardBias = Literal["both", "first", "none"]
"""Which of the two linear maps of a feed-forward network have a bias."""


def split_heads(x: Tensor, heads: int) -> Tensor:
    """`[B, T, H * h]` to `[B, H, T, h]`."""
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


class Linear(nn.Linear):
    """`nn.Linear` with a role, so that an initialisation can treat it as its authors did.

    Plain `nn.Linear` is initialised like the role `other`; a mixer whose maps have one of the other roles
    takes part by using this class.

    Attributes:
        role: What it is for.
        parts: How many maps of one size lie side by side along the outputs: 3 for queries, keys and values,
            or for three gates that have a matrix each in the equations.
        makes_values: In an attention, whether the last part makes values and nothing else. Unless given, it
            does so where there are several: one alone makes queries, or keys that are values too.
    """

    role: Role
    parts: int
    makes_values: bool

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        bias: bool,
        role: Role = "other",
        parts: int = 1,
        makes_values: bool | None = None,
    ) -> None:
        super().__init__(inputs, outputs, bias=bias)
        if outputs % parts:
            raise ValueError(f"{outputs} outputs are not {parts} equal parts")
        self.role, self.parts = role, parts
        self.makes_values = parts > 1 if makes_values is None else makes_values


class Branch(Dropout):
    """The way of a sub-layer's output to the stream: dropout, and a fixed factor."""

    def __init__(self, probability: float, factor: float = 1.0) -> None:
        super().__init__(probability)
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        """Apply to `[B, T, d]`."""
        dropped = super().forward(x)
        return dropped if self.factor == 1 else dropped * self.factor


class FeedForward(nn.Module):
    """W2 drop(act(W1 x + b1)) + b2 (Vaswani et al. 2017, equation 2), without residual and norm.

    With GLU, W1 maps to the stated inner width and W2 reads half of it. SwiGLU and GEGLU have one matrix more
    of the stated width, W2 drop(act(W1 x + b1) * (W3 x + c)) + b2 (Shazeer 2020, GLU Variants Improve
    Transformer); W1 and W3 are one product, `input`, in this order. What `norm` makes of the width that W2
    reads comes right in front of W2 (Sub-LN; Wang et al. 2022, Magneto); None: nothing does.
    """

    def __init__(
        self,
        dim: int,
        inner: int,
        *,
        activation: str,
        bias: FeedForwardBias,
        dropout: float,
        norm: Callable[[int], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.activation: Callable[[Tensor], Tensor]
        if activation in GATES:
            self.activation, width = Gated(GATES[activation]), inner
            self.input: nn.Linear = Linear(dim, 2 * inner, bias=bias != "none", parts=2)
        else:
            self.activation, narrows = ACTIVATIONS[activation]
            self.input, width = nn.Linear(dim, inner, bias=bias != "none"), inner // narrows
        self.output = nn.Linear(width, dim, bias=bias == "both")
        self.dropout = Dropout(dropout)
        self.inner_norm = None if norm is None else norm(width)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Map `[B, T, d]` to `[B, T, d]`; only a norm may differ between target languages."""
        inner = self.dropout(self.activation(self.input(x)))
        if self.inner_norm is not None:
            inner = self.inner_norm(inner, context)
        return self.output(inner)


class Gated:
    """act(first half) * second half of the last axis."""

    def __init__(self, activation: Callable[[Tensor], Tensor]) -> None:
        self.activation = activation

    def __call__(self, x: Tensor) -> Tensor:
        """Map `[..., 2 n]` to `[..., n]`."""
        gate, value = x.chunk(2, -1)
        return self.activation(gate) * value


def norm_layer(kind: NormKind, dim: int, eps: float, languages: int = 0) -> nn.Module:
    """The norm of that kind of the last axis; with L languages, each row `[B, ..., d]` has its own gain."""
    if kind == "layer":
        return layer_norm(dim, eps, languages)
    return LanguageRMSNorm(dim, eps, languages) if languages else RMSNorm(dim, eps)


def layer_norm(dim: int, eps: float, languages: int = 0) -> nn.Module:
    """A layer norm of the last axis; with L languages, rows `[B, ..., d]` have gain and bias of their own."""
    return LanguageNorm(dim, eps, languages) if languages else LayerNorm(dim, eps=eps)


class LayerNorm(nn.LayerNorm):
    """`nn.LayerNorm`, the same for all target languages."""

    def forward(self, x: Tensor, context: Context | None = None) -> Tensor:
        """Normalise `[..., d]`."""
        return super().forward(x)


class RMSNorm(nn.RMSNorm):
    """g * x / sqrt(mean x^2 + eps), the same for all target languages; no bias (Zhang, Sennrich 2019)."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__(dim, eps=eps)
        self.epsilon = eps

    def forward(self, x: Tensor, context: Context | None = None) -> Tensor:
        """Normalise `[..., d]`; the number format stays."""
        return rms_norm(x, self.weight, self.epsilon)


class NoNorm(nn.Identity):
    """Stands where there is no norm."""

    def forward(self, x: Tensor, context: Context | None = None) -> Tensor:
        """`x` as it is."""
        return x


class LanguageNorm(nn.Module):
    """Layer norm with gain and bias of the target language of each row (LALN).

    Zhang et al. 2020 (Improving Massively Multilingual Neural Machine Translation and Zero-Shot Translation).
    `weight` and `bias` are `[L, d]` and begin at 1 and 0.
    """

    def __init__(self, dim: int, eps: float, languages: int) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps
        self.weight = nn.Parameter(torch.ones(languages, dim))
        self.bias = nn.Parameter(torch.zeros(languages, dim))

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Normalise `[B, ..., d]` whose rows have the target languages of the context."""
        return norm_by_language(x, (self.dim,), self.weight, self.bias, self.eps, context.languages)


class LanguageRMSNorm(nn.Module):
    """RMS norm with the gain of the target language of each row: `weight` `[L, d]`, which begins at 1."""

    def __init__(self, dim: int, eps: float, languages: int) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(languages, dim))

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Normalise `[B, ..., d]` whose rows have the target languages of the context."""
        gain = of_languages(self.weight, context.languages).to(x.dtype)
        if gain.size(0) == 1:
            return rms_norm(x, gain[0], self.eps)
        normal = functional.rms_norm(x, gain.shape[1:], None, self.eps)
        return normal * gain.view(gain.size(0), *(1,) * (x.dim() - 2), gain.size(1))


def of_languages(table: Tensor, languages: Tensor | None) -> Tensor:
    """The entry of each row, `[B or 1, ...]`, of a table `[L, ...]` of the target languages.

    Raises:
        ValueError: The languages of the rows were not passed on.
    """
    if languages is None:
        raise ValueError("parameters of each target language, and the languages of the rows were not given")
    return table.index_select(0, languages)


def norm_by_language(
    x: Tensor,
    over: tuple[int, ...],
    weight: Tensor,
    bias: Tensor,
    eps: float,
    languages: Tensor | None,
) -> Tensor:
    """Normalise `[B, ..., *shape]` over its last axes, with gain and bias of each row's language.

    `weight` and `bias` are `[L, *shape]`; `over` are the sizes of the last axes, all of `shape` or fewer.
    """
    gain, shift = of_languages(weight, languages), of_languages(bias, languages)
    if gain.size(0) == 1 and gain.shape[1:] == over:
        return functional.layer_norm(x, over, gain[0], shift[0], eps)
    # A fused kernel has one gain for all rows, so those of the languages are applied after it.
    normal = functional.layer_norm(x, over, None, None, eps)
    shape = (gain.size(0), *(1,) * (normal.dim() - gain.dim()), *gain.shape[1:])
    gain, shift = (each.to(normal.dtype).view(shape) for each in (gain, shift))
    return torch.addcmul(shift, normal, gain)


class GroupedLayerNorm(nn.Module):
    """Layer norm of `groups` vectors of width `dim` that lie next to each other on the last axis.

    Each group has its own gain and bias. `joint` takes one mean and one variance over all groups together, as
    Neutron's recurrent cells do; otherwise each group has its own statistics, as the papers' equations say.
    With L languages, each target language has its own gains and biases: `[L, groups, dim]`.
    """

    def __init__(self, groups: int, dim: int, *, eps: float, joint: bool = False, languages: int = 0) -> None:
        super().__init__()
        self.groups, self.dim, self.eps, self.joint, self.languages = groups, dim, eps, joint, languages
        shape = (languages, groups, dim) if languages else (groups, dim)
        self.weight = nn.Parameter(torch.ones(shape))
        self.bias = nn.Parameter(torch.zeros(shape))

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Normalise `[..., groups * dim]`; the result is `[..., groups, dim]`."""
        x = x.view(*x.shape[:-1], self.groups, self.dim)
        if self.languages:
            over = (self.groups, self.dim) if self.joint else (self.dim,)
            return norm_by_language(x, over, self.weight, self.bias, self.eps, context.languages)
        if self.joint:
            return functional.layer_norm(x, (self.groups, self.dim), self.weight, self.bias, self.eps)
        # A fused kernel has one gain for all rows, so the gains of the groups are applied after it.
        return torch.addcmul(
            self.bias, functional.layer_norm(x, (self.dim,), None, None, self.eps), self.weight
        )

    def extra_repr(self) -> str:
        """Show the measures when printed."""
        return f"groups={self.groups}, dim={self.dim}, joint={self.joint}"


# Tensors without memory stand for those of a CPU where operations are counted.
_DEVICES = ("cpu", "meta")
_EXACT = (torch.float32, torch.float64)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise `[..., d]` and multiply it by the gain `[d]`, in the number format of `x`."""
    weight = weight.to(x.dtype)
    learns = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    if learns and x.device.type in _DEVICES and x.dtype in _EXACT and not torch.compiler.is_compiling():
        return _RMSNorm.apply(x, weight, eps)  # type: ignore[no-untyped-call]
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
        return (x * rate).mul_(weight)

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

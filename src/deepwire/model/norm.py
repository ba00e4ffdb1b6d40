"""Layer normalisation: of each target language its own, and of several vectors side by side in one tensor."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from deepwire.model.languages import TargetLanguages


def layer_norm(dim: int, eps: float, languages: TargetLanguages | None = None) -> nn.Module:
    """A layer norm of the last axis; with languages, rows `[B, ..., d]` have gain and bias of their own."""
    return nn.LayerNorm(dim, eps=eps) if languages is None else LanguageNorm(dim, eps, languages)


class LanguageNorm(nn.Module):
    """Layer norm with gain and bias of the target language of each row (LALN).

    Zhang et al. 2020 (Improving Massively Multilingual Neural Machine Translation and Zero-Shot Translation).
    `weight` and `bias` are `[L, d]` and begin at 1 and 0.
    """

    def __init__(self, dim: int, eps: float, languages: TargetLanguages) -> None:
        super().__init__()
        self.dim, self.eps, self._languages = dim, eps, languages
        self.weight = nn.Parameter(torch.ones(languages.count, dim))
        self.bias = nn.Parameter(torch.zeros(languages.count, dim))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `[B, ..., d]`."""
        return norm_by_language(x, (self.dim,), self.weight, self.bias, self.eps, self._languages)

    def extra_repr(self) -> str:
        """Show the measures when printed."""
        return f"languages={self._languages.count}, dim={self.dim}"


def norm_by_language(
    x: Tensor,
    over: tuple[int, ...],
    weight: Tensor,
    bias: Tensor,
    eps: float,
    languages: TargetLanguages,
) -> Tensor:
    """Normalise `[B, ..., *shape]` over its last axes, with gain and bias of each row's language.

    `weight` and `bias` are `[L, *shape]`; `over` are the sizes of the last axes, all of `shape` or fewer.
    """
    gain, shift = languages.pick(weight), languages.pick(bias)
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
    With languages, each target language has its own gains and biases: `[L, groups, dim]`.
    """

    def __init__(
        self,
        groups: int,
        dim: int,
        *,
        eps: float,
        joint: bool = False,
        languages: TargetLanguages | None = None,
    ) -> None:
        super().__init__()
        self.groups, self.dim, self.eps, self.joint = groups, dim, eps, joint
        self._languages = languages
        shape = (groups, dim) if languages is None else (languages.count, groups, dim)
        self.weight = nn.Parameter(torch.ones(shape))
        self.bias = nn.Parameter(torch.zeros(shape))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `[..., groups * dim]`; the result is `[..., groups, dim]`."""
        x = x.view(*x.shape[:-1], self.groups, self.dim)
        if self._languages is not None:
            over = (self.groups, self.dim) if self.joint else (self.dim,)
            return norm_by_language(x, over, self.weight, self.bias, self.eps, self._languages)
        if self.joint:
            return functional.layer_norm(x, (self.groups, self.dim), self.weight, self.bias, self.eps)
        # A fused kernel has one gain for all rows, so the gains of the groups are applied after it.
        return torch.addcmul(
            self.bias, functional.layer_norm(x, (self.dim,), None, None, self.eps), self.weight
        )

    def extra_repr(self) -> str:
        """Show the measures when printed."""
        return f"groups={self.groups}, dim={self.dim}, joint={self.joint}"

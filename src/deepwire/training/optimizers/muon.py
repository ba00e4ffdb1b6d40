"""Muon: the momentum of each matrix of a layer, made orthogonal, is its step."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from deepwire.config.section import Removed
from deepwire.errors import UsageError
from deepwire.model.layers import Linear
from deepwire.training.optimizers.optimizer import Adam, AdamSection, OptimizerContext, Step, UpdateRule

if TYPE_CHECKING:  # a run file is read without it, and sooner
    from deepwire.model.translation_model import TranslationModel

# Those of Jordan et al. and of torch.optim.Muon.
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS, _EPS = 5, 1e-7

_CACHED = 2**16
"""Numbers of matrices that a core takes at once: with what belongs to them, about a mebibyte."""


class MuonConfig(AdamSection):
    """Muon (Jordan et al. 2024) for the matrices of the layers, AdamW for all else."""

    removed: ClassVar[dict[str, Removed]] = {
        "by_adamw": Removed(([],), "Muon moves all matrices of the layers"),
        "rate_factor": Removed((1.0,), "set training.rate_factors"),
    }

    type: Literal["muon"] = "muon"
    supports_sharding: ClassVar[bool] = False
    momentum: float = Field(default=0.95, ge=0, lt=1, description="share of the momentum that a step keeps")
    nesterov: bool = Field(
        default=True, description="look ahead: mix the gradient once more with the momentum"
    )
    rate_form: Literal["match_rms_adamw", "original"] = Field(
        default="match_rms_adamw",
        description="learning rate of a matrix of r rows and c columns: times 0.2 sqrt(max(r, c)), so that "
        "steps are as large as AdamW's, or times sqrt(max(1, r / c))",
    )

    def rules(self, context: OptimizerContext) -> Sequence[UpdateRule]:
        """Muon, and AdamW of what is left.

        Raises:
            UsageError: Muon finds no matrix that it is to move.
        """
        matrices = {
            name: hidden._replace(rate_factor=context.scale(name).rate)
            for name, hidden in hidden_matrices(context.model, context.learning).items()
        }
        rest = {name: parameter for name, parameter in context.learning.items() if name not in matrices}
        return [
            Muon(matrices, self, context.product_dtype),
            Adam(rest, self, context.strategy, context.scales),
        ]

    def check_parametrization(self) -> None:
        """There are no factors for its matrices."""
        raise ValueError(
            "model.parametrization: complete_p has learning rates for adam and adamw, and none for the "
            "matrices of muon; set training.optimizer.type to adamw, or leave model.parametrization out"
        )


class Matrices(NamedTuple):
    """A parameter `[parts * rows, columns]`: matrices one above the other, and the factor of their rate."""

    parameter: Tensor
    parts: int
    rate_factor: float = 1.0

    def split(self, tensor: Tensor) -> Tensor:
        """The matrices of a tensor of the parameter's shape, `[parts, rows, columns]`."""
        return tensor.view(self.parts, -1, tensor.size(-1))


def hidden_matrices(model: TranslationModel, learning: Mapping[str, nn.Parameter]) -> dict[str, Matrices]:
    """The matrices of linear maps within the stacks, by the names of their parameters.

    Queries, keys and values, or gates, that are stored as one matrix are several (`Linear.parts`). Not among
    them are embeddings, the output projection, maps to or from a single number, and the maps of single heads.

    Raises:
        UsageError: There is none.
    """
    parts: dict[int, int] = {}
    for stack in model.stacks().values():
        for module in stack.modules():
            if isinstance(module, nn.Linear):
                count = module.parts if isinstance(module, Linear) else 1
                if min(module.out_features // count, module.in_features) > 1:
                    parts[id(module.weight)] = count
    chosen = {
        name: Matrices(parameter, parts[id(parameter)])
        for name, parameter in learning.items()
        if id(parameter) in parts
    }
    if not chosen:
        raise UsageError(
            "training.optimizer: there is no matrix left for Muon", "take type: adamw, or freeze less"
        )
    return chosen


class Muon(UpdateRule):
    """B <- m B + (1 - m) G, and W <- (1 - lr decay) W - lr f O, where O is B or with Nesterov's look ahead
    (1 - m) G + m B, with singular values near 1 (Jordan et al. 2024, Muon; torch.optim.Muon).

    The factor f is that of Liu et al. 2025 (Muon is Scalable for LLM Training), equation 4, or of Jordan.
    Matrices of one shape lie together and take some thirty operations a step, however many they are: a GPU
    waits for every operation that Python starts. torch's class is not used: it takes matrix by matrix, knows
    none that are stored as one, and could not leave out a step that is not finite without waiting.

    Args:
        matrices: Those that it moves, by the name of the parameter.
        config: Constants.
        dtype: In which Newton and Schulz' iteration runs; torch.optim.Muon takes bfloat16.
    """

    def __init__(
        self,
        matrices: Mapping[str, Matrices],
        config: MuonConfig,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.matrices, self.config, self.dtype = dict(matrices), config, dtype
        self._momenta = {
            name: torch.zeros_like(each.parameter, requires_grad=False)
            for name, each in self.matrices.items()
        }
        alike: dict[tuple[int, int, float], list[str]] = defaultdict(list)
        for name, each in self.matrices.items():
            rows, columns = each.split(each.parameter).shape[1:]
            alike[rows, columns, each.rate_factor].append(name)
        self._alike = [alike[key] for key in sorted(alike)]

    def step(self, gradients: Mapping[str, Tensor], step: Step) -> None:
        """Move the matrices that have a gradient."""
        for names in self._alike:
            if learning := [name for name in names if name in gradients]:
                self._step(learning, gradients, step)

    def _step(self, names: Sequence[str], gradients: Mapping[str, Tensor], step: Step) -> None:
        """Move matrices of one shape and one factor of the rate."""
        share, alike = self.config.momentum, [self.matrices[name] for name in names]
        parts = [matrices.parts for matrices in alike]
        places = [matrices.split(matrices.parameter) for matrices in alike]
        momenta = [matrices.split(self._momenta[name]) for name, matrices in zip(names, alike, strict=True)]
        both = zip(names, alike, strict=True)
        gradient = torch.cat([matrices.split(gradients[name]) for name, matrices in both]) / step.scale
        momentum = torch.cat(momenta)
        following = momentum.lerp(gradient, 1 - share)
        torch._foreach_copy_(momenta, torch.split(torch.where(step.finite, following, momentum), parts))
        direction = gradient.lerp(following, share) if self.config.nesterov else following
        rate = step.rate * alike[0].rate_factor
        before = torch.cat(places)
        moved = before * (1 - rate * self.config.weight_decay)
        rows, columns = before.shape[1:]
        original = self.config.rate_form == "original"
        factor = math.sqrt(max(1.0, rows / columns)) if original else 0.2 * math.sqrt(max(rows, columns))
        moved.sub_(orthogonalize(direction, self.dtype), alpha=rate * factor)
        torch._foreach_copy_(places, torch.split(torch.where(step.finite, moved, before), parts))

    def state(self) -> dict[str, Tensor]:
        """The tensors of a checkpoint: ``momentum.NAME``."""
        return {f"momentum.{name}": momentum for name, momentum in self._momenta.items()}


def orthogonalize(matrices: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Matrices `[n, r, c]` with the same singular vectors, and singular values near 1 (0.7 to 1.2).

    Five steps X <- a X + (b XX' + c (XX')^2) X, as Newton and Schulz', from X / |X|_F (Jordan et al. 2024).
    The result has the type of `matrices`, the steps `dtype`.
    """
    tall = matrices.size(1) > matrices.size(2)
    x = (matrices.mT if tall else matrices).to(dtype)
    x = x / x.flatten(1).norm(dim=1).clamp(min=_EPS)[:, None, None]
    # Through the small products is half the work for r : c = 1 : 4, and more than the whole for squares. It
    # needs float32: bfloat16 gives XX' eigenvalues below nothing, which grow twelvefold with every step.
    steps = _steps_of_products if dtype == torch.float32 and x.size(2) >= 2 * x.size(1) else _steps
    if x.device.type == "cpu" and dtype == torch.float32:
        # As many at once as stay in a core's cache: a third faster than all for matrices of width 128.
        together = max(1, _CACHED // (x.size(1) * x.size(2))) * torch.get_num_threads()
        x = torch.cat([steps(some) for some in x.split(together)])
    else:
        x = steps(x)
    return (x.mT if tall else x).to(matrices.dtype)


def _steps(x: Tensor) -> Tensor:
    """Five steps one after the other, of matrices `[n, r, c]`."""
    a, b, c = _COEFFICIENTS
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def _steps_of_products(x: Tensor) -> Tensor:
    """The same for r much smaller than c: a step multiplies X by Q = a + b XX' + c (XX')^2, and XX' becomes
    Q XX' Q. So X itself is needed at the beginning and at the end alone."""
    a, b, c = _COEFFICIENTS
    gram, factors = x @ x.mT, list[Tensor]()
    for step in range(_ITERATIONS):
        if step:
            gram = factors[-1] @ gram @ factors[-1]
        factors.append(torch.baddbmm(gram, gram, gram, beta=b, alpha=c))
        factors[-1].diagonal(dim1=1, dim2=2).add_(a)
    return functools.reduce(torch.matmul, factors) @ x

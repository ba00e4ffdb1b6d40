"""From decoder results to token probabilities, and to the training loss."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from deepwire.model.embedding import TokenTable
from deepwire.model.fusions.base import Fusion
from deepwire.ops.cross_entropy import SmoothingForm, linear_cross_entropy, linear_log_prob


class LossSums(NamedTuple):
    """Sums over the real target tokens of a batch, in nats.

    smoothed: label-smoothed loss, differentiable; nll: negative log-likelihood, detached; tokens: how many.
    """

    smoothed: Tensor
    nll: Tensor
    tokens: Tensor


class OutputHead(nn.Module):
    """Output projection and softmax of one decoder result, or a mixture over several groups.

    With G groups and weights psi (GTrans, Eq. 5): arithmetic p = sum_g psi_g softmax(W o_g); geometric
    log p = sum_g psi_g log softmax(W o_g), as released (its total mass is below 1). Training minimises
    sum_g psi_g loss_g in both cases (multi-level loss, Eq. 7).
    """

    def __init__(self, table: TokenTable, *, bias: bool, fusion: Fusion) -> None:
        super().__init__()
        self.table = table
        self.bias = nn.Parameter(torch.zeros(table.weight.size(0))) if bias else None
        # Kept out of the module tree: the fusion belongs to the decoder's stack.
        self._fusion = (fusion,)

    def with_fusion(self, fusion: Fusion) -> OutputHead:
        """The same projection, with the same parameters, of another fusion's results."""
        head = copy(self)
        head._fusion = (fusion,)
        return head

    def loss(
        self, results: Sequence[Tensor], targets: Tensor, smoothing: float, form: SmoothingForm
    ) -> LossSums:
        """Sum the loss of decoder results `[B, T, d]` against targets `[B, T]`; padding does not count."""
        pad = self.table.pad_id
        tokens = (targets != pad).sum()
        weights = self._log_weights()
        smoothed, nll = [], []
        for result in results:
            loss, likelihood = linear_cross_entropy(
                result.flatten(0, 1),
                self.table.weight,
                self.bias,
                targets.flatten(),
                smoothing=smoothing,
                form=form,
                ignore=pad,
            )
            smoothed.append(loss)
            nll.append(likelihood)
        if weights is None:
            return LossSums(smoothed[0], nll[0], tokens)
        psi = weights.exp()
        return LossSums((psi * torch.stack(smoothed)).sum(), (psi.detach() * torch.stack(nll)).sum(), tokens)

    def log_probs(self, results: Sequence[Tensor]) -> Tensor:
        """Log-probabilities of every token, `[..., V]` float32, of results `[..., d]`."""
        return self._mix(
            [
                functional.linear(result, self.table.weight, self.bias).float().log_softmax(-1)
                for result in results
            ]
        )

    def target_log_probs(self, results: Sequence[Tensor], targets: Tensor) -> Tensor:
        """Log-probability of each target, `[B, T]` float32, 0 at padding; never holds all logits."""
        real = targets != self.table.pad_id
        wanted = targets[real]
        found = [linear_log_prob(result[real], self.table.weight, self.bias, wanted) for result in results]
        scores = torch.zeros(targets.shape, device=targets.device)
        scores[real] = self._mix(found).float()
        return scores

    def _log_weights(self) -> Tensor | None:
        return self._fusion[0].log_weights()

    def _mix(self, found: Sequence[Tensor]) -> Tensor:
        weights = self._log_weights()
        if weights is None:
            return found[0]
        if self._fusion[0].probabilities == "geometric":
            return torch.stack(
                [weight.exp() * each for weight, each in zip(weights, found, strict=True)]
            ).sum(0)
        return torch.stack([weight + each for weight, each in zip(weights, found, strict=True)]).logsumexp(0)

"""Output projection: decoder results to token probabilities and the training loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial, reduce
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from deepwire.model.embedding import TokenEmbedding
from deepwire.model.fusions.fusion import Fusion
from deepwire.ops.cross_entropy import SmoothingForm, chunk_size, linear_cross_entropy, linear_log_prob
from deepwire.ops.packed_linear import Pack, PackedLinear
from deepwire.ops.pair_loss import PairLoss


class LossSums(NamedTuple):
    """Sums over the target tokens of a batch without padding, in nats.

    Attributes:
        smoothed: Label-smoothed loss, differentiable.
        nll: Negative log-likelihood, detached.
        tokens: Number of tokens.
        divergence: Divergence of the two passes of R-Drop or SimCut, detached; else None.
    """

    smoothed: Tensor
    nll: Tensor
    tokens: Tensor
    divergence: Tensor | None = None


@dataclass(frozen=True)
class Projection:
    """Projects results to the logits of k tokens.

    Attributes:
        linear: Maps `[..., d]` to `[..., k]`.
        biases: `[L, k]`, a bias for each target language, or None.
    """

    linear: Callable[[Tensor], Tensor]
    biases: Tensor | None

    def __call__(self, result: Tensor, languages: Tensor | None) -> Tensor:
        """Logits `[B, ..., k]` of results `[B, ..., d]`; `languages` `[B]` are the target languages."""
        logits = self.linear(result)
        if self.biases is None or languages is None:
            return logits
        bias = self.biases.index_select(0, languages)
        return logits + bias.view(-1, *(1,) * (result.dim() - 2), bias.size(-1))


class OutputHead(nn.Module):
    """Output projection and softmax of one decoder result, or a mixture over several.

    With G results and weights psi (GTrans, Eq. 5): arithmetic p = sum_g psi_g softmax(W o_g); geometric
    log p = sum_g psi_g log softmax(W o_g), as released (its total mass is below 1). Training minimises
    sum_g psi_g loss_g in both cases (multi-level loss, Eq. 7).

    The bias is `[V]`, or `[L, V]` with a bias for each of L target languages. If bias or psi depend on the
    language, every method needs the language of each row, `[B]`.

    `scale` multiplies the results before the projection.
    """

    def __init__(
        self, table: TokenEmbedding, *, bias: bool, fusion: Fusion, languages: int = 0, scale: float = 1.0
    ) -> None:
        super().__init__()
        self.table, self.scale = table, scale
        shape = (languages, table.weight.size(0)) if languages else (table.weight.size(0),)
        self.bias = nn.Parameter(torch.zeros(shape)) if bias else None
        # In a tuple, so that it is not a submodule: the fusion belongs to the decoder's stack.
        self._fusion = (fusion,)
        self.packed: PackedLinear | None = None
        self._make_linear: Callable[[Tensor, Tensor | None], Callable[[Tensor], Tensor]] = _linear
        self._selected: Projection | None = None
        self.selects_by_language = False

    def pack(self, make: Pack) -> None:
        """Projects with a packed copy of the weight from now on, fast in decoding but not trained."""
        self.packed = make(self.table.weight, self._biases()[0])
        self._make_linear = make

    def select(self, tokens: Tensor, allowed: Tensor | None = None) -> OutputHead:
        """A copy whose `log_probs` are over `tokens` `[k]` only, and sum to one over them.

        Their rows of the weight are copied, and packed if it is; losses and `target_log_probs` stay over all
        tokens. With `allowed` `[L, k]`, tokens not allowed in a target language have a bias of -inf there.
        """
        shared, biases = (None if each is None else each.detach()[..., tokens] for each in self._biases())
        head = copy(self)
        head.selects_by_language = allowed is not None
        if allowed is not None:
            mask = self.table.weight.new_zeros(allowed.shape).masked_fill_(~allowed, -torch.inf)
            biases = mask if biases is None else biases + mask
        head._selected = Projection(self._make_linear(self.table.weight.detach()[tokens], shared), biases)
        return head

    def with_fusion(self, fusion: Fusion) -> OutputHead:
        """A copy with the same parameters for the results of another fusion."""
        head = copy(self)
        head._fusion = (fusion,)
        return head

    def loss(
        self,
        results: Sequence[Tensor],
        targets: Tensor,
        smoothing: float,
        form: SmoothingForm,
        languages: Tensor | None = None,
    ) -> LossSums:
        """Loss of decoder results `[B, T, d]` against targets `[B, T]`, summed over real tokens."""
        pad = self.table.pad_id
        tokens = (targets != pad).sum()
        psi = self._fusion_weights(languages)
        smoothed, nll = [], []
        weight, bias = self._weight_and_bias()
        for group, result in enumerate(results):
            counts = _token_weights(psi, group, targets)
            loss, likelihood = linear_cross_entropy(
                self._linear_input(result, languages).flatten(0, 1),
                weight,
                bias,
                targets.flatten(),
                smoothing=smoothing,
                form=form,
                ignore=pad,
                weights=None if counts is None else counts.flatten(),
            )
            smoothed.append(loss)
            nll.append(likelihood)
        detached = None if psi is None else psi.detach()
        return LossSums(_weighted_sum(psi, smoothed), _weighted_sum(detached, nll), tokens)

    def pair_loss(
        self,
        results: Sequence[Tensor],
        targets: Tensor,
        smoothing: float,
        form: SmoothingForm,
        pair: PairLoss,
        languages: Tensor | None = None,
    ) -> LossSums:
        """Loss of two forward passes: results `[2 B, T, d]`, first pass first, against targets `[B, T]`.

        `pair` is `linear_r_drop` or `linear_sim_cut` with its weight; `languages` are `[2 B]`.
        """
        real = targets != self.table.pad_id
        psi = self._fusion_weights(languages)
        weight, bias = self._weight_and_bias()
        sums = []
        for group, result in enumerate(results):
            counts = _token_weights(psi, group, targets)
            group_sums = pair(
                self._linear_input(result, languages).view(2, *targets.shape, -1)[:, real],
                weight,
                bias,
                targets[real],
                smoothing=smoothing,
                form=form,
                weights=None if counts is None else counts[real],
            )
            sums.append(group_sums)
        detached = None if psi is None else psi.detach()
        loss, nll, divergence = zip(*sums, strict=True)
        return LossSums(
            _weighted_sum(psi, loss),
            _weighted_sum(detached, nll),
            real.sum(),
            _weighted_sum(detached, divergence),
        )

    def log_probs(self, results: Sequence[Tensor], languages: Tensor | None = None) -> Tensor:
        """Log-probabilities `[B, ..., V]`, in float32 or wider, of results `[B, ..., d]`."""
        log_probs = [_log_softmax(self.logits(result, languages)) for result in results]
        return self._mix(log_probs, self._fusion[0].log_weights(languages))

    def logits(self, result: Tensor, languages: Tensor | None = None) -> Tensor:
        """Logits `[B, ..., V]` of one result `[B, ..., d]`, of the selected tokens only if there are any."""
        project = self._projection() if self._selected is None else self._selected
        return project(self._scaled(result), languages)

    def target_log_probs(
        self, results: Sequence[Tensor], targets: Tensor, languages: Tensor | None = None
    ) -> Tensor:
        """Log-probability of each target, `[B, T]` float32, 0 at padding; logits are computed in chunks."""
        real = targets != self.table.pad_id
        tokens = targets[real]
        log_probs = [self._target_log_probs(result, languages, real, tokens) for result in results]
        weights = self._fusion[0].log_weights(languages)
        if weights is not None and weights.dim() == 2:
            weights = weights.unsqueeze(2).expand(-1, *targets.shape)[:, real]
        scores = torch.zeros(targets.shape, dtype=torch.float32, device=targets.device)
        scores[real] = self._mix(log_probs, weights).float()
        return scores

    def _weight_and_bias(self) -> tuple[Tensor, Tensor | None]:
        """Weight and bias of the projection; biases of languages are columns of the weight, `[V, d + L]`."""
        if self.bias is None or self.bias.dim() == 1:
            return self.table.weight, self.bias
        return torch.cat((self.table.weight, self.bias.t()), 1), None

    def _linear_input(self, result: Tensor, languages: Tensor | None) -> Tensor:
        """A result `[B, T, d]` as input of `_weight_and_bias`, with one-hot languages if they have biases."""
        result = self._scaled(result)
        if self.bias is None or self.bias.dim() == 1 or languages is None:
            return result
        one_hot = functional.one_hot(languages, self.bias.size(0)).to(result.dtype).unsqueeze(1)
        return torch.cat((result, one_hot.expand(*result.shape[:-1], -1)), -1)

    def _scaled(self, result: Tensor) -> Tensor:
        return result if self.scale == 1 else result * self.scale

    def _biases(self) -> tuple[Tensor | None, Tensor | None]:
        """The bias `[V]` of all rows and the biases `[L, V]` of languages; at least one is None."""
        if self.bias is None or self.bias.dim() == 1:
            return self.bias, None
        return None, self.bias

    def _projection(self) -> Projection:
        shared, biases = self._biases()
        return Projection(self.packed or _linear(self.table.weight, shared), biases)

    def _target_log_probs(
        self, result: Tensor, languages: Tensor | None, real: Tensor, tokens: Tensor
    ) -> Tensor:
        """Log-probabilities `[n]` of `tokens` `[n]`, which stand where `real` `[B, T]` is true."""
        if self.packed is None:
            weight, bias = self._weight_and_bias()
            return linear_log_prob(self._linear_input(result, languages)[real], weight, bias, tokens)
        size, project = chunk_size(self.table.weight), self._projection()
        row_languages = None if languages is None else languages.expand(real.size(0))
        rows = torch.arange(real.size(0), device=real.device).unsqueeze(1).expand_as(real)[real]
        log_probs = [
            _log_softmax(project(hidden, None if row_languages is None else row_languages[row]))
            .gather(1, token.unsqueeze(1))
            .squeeze(1)
            for hidden, row, token in zip(
                torch.split(self._scaled(result)[real], size),
                torch.split(rows, size),
                torch.split(tokens, size),
                strict=True,
            )
        ]
        return torch.cat(log_probs)

    def _fusion_weights(self, languages: Tensor | None) -> Tensor | None:
        """psi of the G results, `[G]`, or `[G, B]` by row; None for one result."""
        weights = self._fusion[0].log_weights(languages)
        return None if weights is None else weights.exp()

    def _mix(self, log_probs: Sequence[Tensor], weights: Tensor | None) -> Tensor:
        """Mixes log-probabilities `[B, ...]` of the results; `weights` are log psi."""
        if weights is None:
            return log_probs[0]
        if weights.dim() == 2:
            weights = weights.view(*weights.shape, *(1,) * (log_probs[0].dim() - 1))
        pairs = zip(weights, log_probs, strict=True)
        if self._fusion[0].probabilities == "geometric":
            mixed: Tensor = reduce(torch.add, (weight.exp() * each for weight, each in pairs))
        else:  # two at a time: as exact as one sum over a stack of all, without making one
            mixed = reduce(torch.logaddexp, (weight + each for weight, each in pairs))
        return mixed


def _token_weights(psi: Tensor | None, group: int, targets: Tensor) -> Tensor | None:
    """Weights `[B, T]` of the tokens in the loss of one result; None if psi is the same for all rows."""
    return None if psi is None or psi.dim() == 1 else psi[group, : len(targets), None].expand_as(targets)


def _weighted_sum(psi: Tensor | None, sums: Sequence[Tensor]) -> Tensor:
    """Combines the losses of the results by psi; by row it is already in their weights of tokens."""
    if psi is None:
        return sums[0]
    stacked = torch.stack(tuple(sums))
    return stacked.sum() if psi.dim() == 2 else (psi * stacked).sum()


def _linear(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    return partial(functional.linear, weight=weight, bias=bias)


def _log_softmax(logits: Tensor) -> Tensor:
    """Log-softmax over the last axis, in float32 or wider.

    In place on a CPU without gradients: logits are the largest tensor of a decoding step, and allocating
    another costs as much time as the sums.
    """
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if torch.is_grad_enabled() or wide.device.type != "cpu":
        return wide.log_softmax(-1)
    return torch.log_softmax(wide, -1, out=wide)

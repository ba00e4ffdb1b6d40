"""From decoder results to token probabilities, and to the training loss."""

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
from deepwire.ops.cross_entropy import SmoothingForm, linear_cross_entropy, linear_log_prob
from deepwire.ops.logit_chunks import chunk_size
from deepwire.ops.packed_linear import Pack, PackedLinear
from deepwire.ops.pair_loss import PairLoss


class LossSums(NamedTuple):
    """Sums over the real target tokens of a batch, in nats.

    smoothed: label-smoothed loss, differentiable; nll: negative log-likelihood, detached; tokens: how many;
    divergence: with R-Drop or SimCut that of the two passes, detached, else None.
    """

    smoothed: Tensor
    nll: Tensor
    tokens: Tensor
    divergence: Tensor | None = None


@dataclass(frozen=True)
class Projection:
    """From results to the logits of some tokens.

    Attributes:
        linear: Maps `[..., d]` to `[..., k]`.
        biases: `[L, k]`, one for each target language; None without.
    """

    linear: Callable[[Tensor], Tensor]
    biases: Tensor | None

    def __call__(self, result: Tensor, languages: Tensor | None) -> Tensor:
        """Map each token, `[B, ..., k]`; `languages` `[B]` are those of the rows."""
        logits = self.linear(result)
        if self.biases is None or languages is None:
            return logits
        bias = self.biases.index_select(0, languages)
        return logits + bias.view(-1, *(1,) * (result.dim() - 2), bias.size(-1))


class OutputHead(nn.Module):
    """Output projection and softmax of one decoder result, or a mixture over several groups.

    With G groups and weights psi (GTrans, Eq. 5): arithmetic p = sum_g psi_g softmax(W o_g); geometric
    log p = sum_g psi_g log softmax(W o_g), as released (its total mass is below 1). Training minimises
    sum_g psi_g loss_g in both cases (multi-level loss, Eq. 7).

    The bias is `[V]`, or `[L, V]` with one for each of L target languages; then, and where psi are those of
    the target language, every method wants the language of each row, `[B]`.

    `scale` multiplies the results, and so the logits but for their bias.
    """

    def __init__(
        self, table: TokenEmbedding, *, bias: bool, fusion: Fusion, languages: int = 0, scale: float = 1.0
    ) -> None:
        super().__init__()
        self.table, self.scale = table, scale
        shape = (languages, table.weight.size(0)) if languages else (table.weight.size(0),)
        self.bias = nn.Parameter(torch.zeros(shape)) if bias else None
        # Kept out of the module tree: the fusion belongs to the decoder's stack.
        self._fusion = (fusion,)
        self.packed: PackedLinear | None = None
        self._make: Callable[[Tensor, Tensor | None], Callable[[Tensor], Tensor]] = _product
        self._selected: Projection | None = None
        self.selects_by_language = False

    def pack(self, make: Pack) -> None:
        """Predict with a copy of the matrix that is laid out for decoding from now on; it learns no more."""
        self.packed, self._make = make(self.table.weight, self._biases()[0]), make

    def select(self, tokens: Tensor, allowed: Tensor | None = None) -> OutputHead:
        """The same projection, but `log_probs` are those of `tokens` `[k]` alone, and sum to one over them.

        Their rows are copied, and packed as all were; loss and `target_log_probs` stay those of all tokens.
        With `allowed` `[L, k]` a row has only those of its target language: the others have a bias of -inf.
        """
        shared, biases = (None if each is None else each.detach()[..., tokens] for each in self._biases())
        head = copy(self)
        head.selects_by_language = allowed is not None
        if allowed is not None:
            never = self.table.weight.new_zeros(allowed.shape).masked_fill_(~allowed, -torch.inf)
            biases = never if biases is None else biases + never
        head._selected = Projection(self._make(self.table.weight.detach()[tokens], shared), biases)
        return head

    def with_fusion(self, fusion: Fusion) -> OutputHead:
        """The same projection, with the same parameters, of another fusion's results."""
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
        """Sum the loss of decoder results `[B, T, d]` against targets `[B, T]`; padding does not count."""
        pad = self.table.pad_id
        tokens = (targets != pad).sum()
        psi = self._weights(languages)
        smoothed, nll = [], []
        weight, bias = self._map()
        for group, result in enumerate(results):
            counts = _of_tokens(psi, group, targets)
            loss, likelihood = linear_cross_entropy(
                self._inputs(result, languages).flatten(0, 1),
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
        fixed = None if psi is None else psi.detach()
        return LossSums(_total(psi, smoothed), _total(fixed, nll), tokens)

    def pair_loss(
        self,
        results: Sequence[Tensor],
        targets: Tensor,
        smoothing: float,
        form: SmoothingForm,
        pair: PairLoss,
        languages: Tensor | None = None,
    ) -> LossSums:
        """A loss of two passes: results `[2 B, T, d]`, one pass after the other, of targets `[B, T]`.

        `pair` is `linear_r_drop` or `linear_sim_cut` with its constants; `languages` `[2 B]` are those of the
        rows.
        """
        real = targets != self.table.pad_id
        psi = self._weights(languages)
        weight, bias = self._map()
        sums = []
        for group, result in enumerate(results):
            counts = _of_tokens(psi, group, targets)
            both = pair(
                self._inputs(result, languages).view(2, *targets.shape, -1)[:, real],
                weight,
                bias,
                targets[real],
                smoothing=smoothing,
                form=form,
                weights=None if counts is None else counts[real],
            )
            sums.append(both)
        fixed = None if psi is None else psi.detach()
        loss, nll, divergence = zip(*sums, strict=True)
        return LossSums(_total(psi, loss), _total(fixed, nll), real.sum(), _total(fixed, divergence))

    def log_probs(self, results: Sequence[Tensor], languages: Tensor | None = None) -> Tensor:
        """Log-probabilities, `[B, ..., V]` in float32 at least, of results `[B, ..., d]`."""
        log_probs = [_log_softmax(self.logits(result, languages)) for result in results]
        return self._mix(log_probs, self._log_weights(languages))

    def logits(self, result: Tensor, languages: Tensor | None = None) -> Tensor:
        """Logits of every token or those selected, `[B, ..., V]`, of one result `[B, ..., d]`."""
        project = self._projection() if self._selected is None else self._selected
        return project(self._scaled(result), languages)

    def target_log_probs(
        self, results: Sequence[Tensor], targets: Tensor, languages: Tensor | None = None
    ) -> Tensor:
        """Log-probability of each target, `[B, T]` float32, 0 at padding; never holds all logits."""
        real = targets != self.table.pad_id
        wanted = targets[real]
        log_probs = [self._log_probs_of(result, languages, real, wanted) for result in results]
        weights = self._log_weights(languages)
        if weights is not None and weights.dim() == 2:
            weights = weights.unsqueeze(2).expand(-1, *targets.shape)[:, real]
        scores = torch.zeros(targets.shape, dtype=torch.float32, device=targets.device)
        scores[real] = self._mix(log_probs, weights).float()
        return scores

    def _map(self) -> tuple[Tensor, Tensor | None]:
        """Weight and bias of the projection; biases of languages are columns of the weight, `[V, d + L]`."""
        if self.bias is None or self.bias.dim() == 1:
            return self.table.weight, self.bias
        return torch.cat((self.table.weight, self.bias.t()), 1), None

    def _inputs(self, result: Tensor, languages: Tensor | None) -> Tensor:
        """Inputs of the map of `[B, T, d]`: where languages have biases, also a 1 for that of its row."""
        result = self._scaled(result)
        if self.bias is None or self.bias.dim() == 1 or languages is None:
            return result
        chosen = functional.one_hot(languages, self.bias.size(0)).to(result.dtype).unsqueeze(1)
        return torch.cat((result, chosen.expand(*result.shape[:-1], -1)), -1)

    def _scaled(self, result: Tensor) -> Tensor:
        """A result as the projection reads it."""
        return result if self.scale == 1 else result * self.scale

    def _biases(self) -> tuple[Tensor | None, Tensor | None]:
        """The bias `[V]` of all rows, and those `[L, V]` of target languages; at most one of them."""
        shared = self.bias is None or self.bias.dim() == 1
        return (self.bias, None) if shared else (None, self.bias)

    def _projection(self) -> Projection:
        """To every token."""
        shared, biases = self._biases()
        return Projection(self.packed or _product(self.table.weight, shared), biases)

    def _log_probs_of(self, result: Tensor, languages: Tensor | None, real: Tensor, tokens: Tensor) -> Tensor:
        """Log-probability of the `tokens` `[n]` where `[B, T]` is `real`; the logits of a few at a time."""
        if self.packed is None:
            weight, bias = self._map()
            return linear_log_prob(self._inputs(result, languages)[real], weight, bias, tokens)
        size, project = chunk_size(self.table.weight), self._projection()
        each = None if languages is None else languages.expand(real.size(0))
        rows = torch.arange(real.size(0), device=real.device).unsqueeze(1).expand_as(real)[real]
        log_probs = [
            _log_softmax(project(hidden, None if each is None else each[row]))
            .gather(1, wanted.unsqueeze(1))
            .squeeze(1)
            for hidden, row, wanted in zip(
                torch.split(self._scaled(result)[real], size),
                torch.split(rows, size),
                torch.split(tokens, size),
                strict=True,
            )
        ]
        return torch.cat(log_probs)

    def _log_weights(self, languages: Tensor | None) -> Tensor | None:
        """Log-weights of the G results, `[G]`, or `[G, B]` by row; None for one result."""
        return self._fusion[0].log_weights(languages)

    def _weights(self, languages: Tensor | None) -> Tensor | None:
        """psi, likewise."""
        weights = self._log_weights(languages)
        return None if weights is None else weights.exp()

    def _mix(self, log_probs: Sequence[Tensor], weights: Tensor | None) -> Tensor:
        """Log-probabilities `[B, ...]` of all results from those of each, with the log of their weights."""
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


def _of_tokens(psi: Tensor | None, group: int, targets: Tensor) -> Tensor | None:
    """How much each token of `[B, T]` counts in the sum of one result; None where all count the same."""
    return None if psi is None or psi.dim() == 1 else psi[group, : len(targets), None].expand_as(targets)


def _total(psi: Tensor | None, sums: Sequence[Tensor]) -> Tensor:
    """The loss of all results, from the sums of each, in which weights of tokens are included."""
    if psi is None:
        return sums[0]
    return torch.stack(tuple(sums)).sum() if psi.dim() == 2 else (psi * torch.stack(tuple(sums))).sum()


def _product(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    return partial(functional.linear, weight=weight, bias=bias)


def _log_softmax(logits: Tensor) -> Tensor:
    """Over the last axis, in float32 at least.

    On a CPU in place where no gradient is taken: logits are the largest thing in a step, and new memory for
    them costs as much as the sums.
    """
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if torch.is_grad_enabled() or wide.device.type != "cpu":
        return wide.log_softmax(-1)
    return torch.log_softmax(wide, -1, out=wide)
